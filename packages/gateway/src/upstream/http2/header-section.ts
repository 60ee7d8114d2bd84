import { type FrameHead, HEAD_BYTES, unpadded } from './frames.js';
import { type HeaderFields, HeaderReader } from './header-reader.js';
import { ErrorCode, Flag, FrameType, ProtocolFault } from './protocol.js';

const MAX_BLOCK_BYTES = 64 * 1024;
/** The stream a stream depends on, and its weight: of no use to a client. */
const PRIORITY_BYTES = 5;

/** All headers, or all trailers, of a stream. */
export interface HeaderSection {
  readonly streamId: number;
  readonly fields: HeaderFields;
  /** Whether nothing follows on the stream. */
  readonly isLast: boolean;
}

/** A section whose block goes on in the next frame. */
interface Unfinished {
  readonly head: FrameHead;
  readonly pieces: Buffer[];
  bytes: number;
}

/** Reads headers from the frames they come in. */
export class HeaderSections {
  private readonly reader = new HeaderReader();
  private unfinished: Unfinished | undefined;

  /** Throws on a frame other than the one that has to come now. */
  checkOrder({ type, streamId }: FrameHead): void {
    const awaited = this.unfinished?.head.streamId;
    const given = type === FrameType.continuation ? streamId : undefined;
    if (given !== awaited) throw new ProtocolFault('a frame comes amid the headers of a stream');
  }

  /** Takes a frame of headers; gives them once they are complete. */
  take(head: FrameHead, payload: Buffer): HeaderSection | undefined {
    const isBegin = head.type === FrameType.headers;
    const piece = isBegin ? blockIn(payload, head.flags) : payload;
    if (isBegin && isEndOfHeaders(head)) return this.read(head, piece);
    this.unfinished ??= { head, pieces: [], bytes: 0 };
    const { pieces, head: first } = this.unfinished;
    pieces.push(Buffer.from(piece));
    this.unfinished.bytes += HEAD_BYTES + piece.length;
    if (this.unfinished.bytes > MAX_BLOCK_BYTES) throw tooMuch();
    if (!isEndOfHeaders(head)) return undefined;
    this.unfinished = undefined;
    return this.read(first, Buffer.concat(pieces));
  }

  private read({ streamId, flags }: FrameHead, block: Buffer): HeaderSection | undefined {
    const fields = this.reader.read(block);
    const isLast = (flags & Flag.endStream) !== 0;
    return isHint(fields) ? undefined : { streamId, isLast, fields };
  }
}

const isEndOfHeaders = ({ flags }: FrameHead) => (flags & Flag.endHeaders) !== 0;

function blockIn(payload: Buffer, flags: number): Buffer {
  const plain = unpadded(payload, flags);
  return (flags & Flag.priority) === 0 ? plain : plain.subarray(PRIORITY_BYTES);
}

/** Whether the real headers are yet to come. */
function isHint(fields: HeaderFields): boolean {
  return fields.get(':status')?.startsWith('1') ?? false;
}

function tooMuch(): ProtocolFault {
  const text = `a header block has more than ${MAX_BLOCK_BYTES} bytes`;
  return new ProtocolFault(text, ErrorCode.enhanceYourCalm);
}
