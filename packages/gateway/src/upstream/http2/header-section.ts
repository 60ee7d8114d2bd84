import { type FrameHead, unpadded } from './frames.js';
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

interface Unfinished {
  readonly streamId: number;
  readonly isLast: boolean;
  readonly pieces: Buffer[];
  bytes: number;
}

/** Puts headers together from the frames they come in. */
export class HeaderSections {
  private readonly reader = new HeaderReader();
  private unfinished: Unfinished | undefined;

  /** Takes a frame of headers; gives them once they are complete. */
  take(head: FrameHead, payload: Buffer): HeaderSection | undefined {
    const section = head.type === FrameType.headers ? this.begin(head) : this.current(head);
    const piece = head.type === FrameType.headers ? blockIn(payload, head.flags) : payload;
    section.pieces.push(piece);
    section.bytes += piece.length;
    if (section.bytes > MAX_BLOCK_BYTES) throw tooMuch();
    if ((head.flags & Flag.endHeaders) === 0) return undefined;
    this.unfinished = undefined;
    const block = section.pieces.length === 1 ? piece : Buffer.concat(section.pieces);
    const fields = this.reader.read(block);
    return isHint(fields) ? undefined : { streamId: head.streamId, isLast: section.isLast, fields };
  }

  /** Between the frames of one section there must be no other. */
  checkOrder({ type }: FrameHead): void {
    if (this.unfinished !== undefined && type !== FrameType.continuation) throw outOfOrder();
  }

  private begin({ streamId, flags }: FrameHead): Unfinished {
    const isLast = (flags & Flag.endStream) !== 0;
    this.unfinished = { streamId, isLast, pieces: [], bytes: 0 };
    return this.unfinished;
  }

  private current({ streamId }: FrameHead): Unfinished {
    if (this.unfinished?.streamId !== streamId) throw outOfOrder();
    return this.unfinished;
  }
}

function blockIn(payload: Buffer, flags: number): Buffer {
  const plain = unpadded(payload, flags);
  return (flags & Flag.priority) === 0 ? plain : plain.subarray(PRIORITY_BYTES);
}

/** Whether the real headers are yet to come. */
function isHint(fields: HeaderFields): boolean {
  return fields.get(':status')?.startsWith('1') ?? false;
}

function outOfOrder(): ProtocolFault {
  return new ProtocolFault('a frame comes amid the headers of another');
}

function tooMuch(): ProtocolFault {
  const text = `a header block has more than ${MAX_BLOCK_BYTES} bytes`;
  return new ProtocolFault(text, ErrorCode.enhanceYourCalm);
}
