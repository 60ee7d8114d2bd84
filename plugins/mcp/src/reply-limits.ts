import { JsonTextLimit } from '@sibyl/protocol';

/** The most that one reply, or one event of a stream, may have. */
export const MAX_REPLY_BYTES = 4 * 1024 ** 2;
/** The most JSON values in what a server sends at once, and how many more in each second. */
export const VALUES = { max: 50_000, perSecond: 20_000 };

/** What is wrong with a reply that has more, after the name of the server. */
export const TOO_LARGE = `answered with more than ${MAX_REPLY_BYTES / 1024 ** 2} MiB or ${VALUES.max} JSON values; the call may have had its effect. Ask for less, such as fewer entries or fields`;

/** Why a request failed, as JSON-RPC. */
export const tooLargeError = (id: number, server: string) => ({
  jsonrpc: '2.0' as const,
  id,
  error: { code: -32_000, message: `${server} ${TOO_LARGE}` },
});

const LF = 10;
/** How much of the beginning and of the end of a line is searched for its id. */
const ENDS_BYTES = 256;

/**
 * Replaces each event of a stream of replies that is too large by the error of its request, so that the other requests continue. The
 * data of such events is one line. Throws if the request that it answers is unknown.
 */
export class ReplyStream {
  private line = new Line();

  constructor(private readonly server: string) {}

  /** What is complete. */
  add(chunk: Buffer): Buffer {
    const complete: Buffer[] = [];
    for (let start = 0, end = 0; start < chunk.length; start = end) {
      end = chunk.indexOf(LF, start) + 1 || chunk.length;
      this.line.add(chunk.subarray(start, end));
      if (chunk[end - 1] === LF) complete.push(this.endLine());
    }
    return Buffer.concat(complete);
  }

  private endLine(): Buffer {
    const { line } = this;
    this.line = new Line();
    if (!line.isTooLarge) return line.bytes;
    const id = findId(line);
    if (id === undefined) throw new RangeError('An event of the stream is too large');
    return Buffer.from(`data: ${JSON.stringify(tooLargeError(id, this.server))}\n`);
  }
}

/** A line of a stream, or both ends of one that is too large. */
class Line {
  isTooLarge = false;
  end: Buffer = Buffer.alloc(0);
  private buffer: Buffer = Buffer.alloc(0);
  private length = 0;
  private readonly values = new JsonTextLimit({ ...VALUES, perSecond: 0 });

  get bytes(): Buffer {
    return this.buffer.subarray(0, this.length);
  }

  add(piece: Buffer): void {
    this.isTooLarge ||= this.length + piece.length > MAX_REPLY_BYTES || !this.hasRoomFor(piece);
    if (this.isTooLarge) this.keepEnds(piece);
    else this.append(piece);
  }

  private hasRoomFor(piece: Buffer): boolean {
    try {
      this.values.add(piece);
      return true;
    } catch {
      return false;
    }
  }

  /** However small the pieces are. */
  private append(piece: Buffer): void {
    const length = this.length + piece.length;
    if (length > this.buffer.length) {
      const larger = Buffer.alloc(this.length === 0 ? length : 2 * length);
      this.bytes.copy(larger);
      this.buffer = larger;
    }
    piece.copy(this.buffer, this.length);
    this.length = length;
  }

  private keepEnds(piece: Buffer): void {
    const before = this.end.length > 0 ? this.end : this.bytes;
    this.end = Buffer.concat([before, piece]).subarray(-ENDS_BYTES);
    if (this.length < ENDS_BYTES) this.append(piece.subarray(0, ENDS_BYTES - this.length));
  }
}

/** Before the result, or after it. */
const FIRST_ID = /^data:\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d+)\s*[,}]/;
const LAST_ID = /"id"\s*:\s*(\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$/;

function findId({ bytes, end }: Line): number | undefined {
  const [, id] =
    FIRST_ID.exec(bytes.toString('latin1', 0, ENDS_BYTES)) ??
    LAST_ID.exec(end.toString('latin1')) ??
    [];
  return id === undefined ? undefined : Number(id);
}
