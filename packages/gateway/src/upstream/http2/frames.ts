import { ErrorCode, Flag, ProtocolFault } from './protocol.js';

export interface FrameHead {
  readonly type: number;
  readonly flags: number;
  readonly streamId: number;
}

/** Takes a frame; the payload is there only until this returns. */
type TakeFrame = (head: FrameHead, payload: Buffer) => void;

/** The length, type, flags and stream before every payload. */
export const HEAD_BYTES = 9;

/** Encodes the head of a frame whose payload has so many bytes. */
export function headOf({ type, flags, streamId }: FrameHead, length: number): Buffer {
  const head = Buffer.allocUnsafe(HEAD_BYTES);
  head.writeUIntBE(length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(streamId, 5);
  return head;
}

/** Cuts what arrives into frames. Only one that arrives in parts is copied. */
export class FrameSplitter {
  private readonly held: Buffer;
  private heldBytes = 0;

  constructor(
    private readonly maxFrame: number,
    private readonly onFrame: TakeFrame,
  ) {
    this.held = Buffer.allocUnsafe(HEAD_BYTES + maxFrame);
  }

  /** The bytes may be overwritten once this returns. */
  take(bytes: Buffer): void {
    let at = this.heldBytes > 0 ? this.complete(bytes) : 0;
    while (bytes.length - at >= HEAD_BYTES) {
      const end = at + this.sizeAt(bytes, at);
      if (end > bytes.length) break;
      this.emit(bytes, at, end);
      at = end;
    }
    this.hold(bytes, at, bytes.length - at);
  }

  /** Adds to the frame that came in part; says from where on the bytes are those of the next. */
  private complete(bytes: Buffer): number {
    const at = this.hold(bytes, 0, HEAD_BYTES - this.heldBytes);
    if (this.heldBytes < HEAD_BYTES) return at;
    const size = this.sizeAt(this.held, 0);
    const end = this.hold(bytes, at, size - this.heldBytes);
    if (this.heldBytes < size) return end;
    this.heldBytes = 0;
    this.emit(this.held, 0, size);
    return end;
  }

  private hold(bytes: Buffer, at: number, count: number): number {
    const end = Math.min(bytes.length, at + Math.max(0, count));
    this.heldBytes += bytes.copy(this.held, this.heldBytes, at, end);
    return end;
  }

  private emit(bytes: Buffer, at: number, end: number): void {
    const streamId = bytes.readUInt32BE(at + 5) & 0x7fffffff;
    const head = { type: bytes[at + 3] ?? 0, flags: bytes[at + 4] ?? 0, streamId };
    this.onFrame(head, bytes.subarray(at + HEAD_BYTES, end));
  }

  private sizeAt(bytes: Buffer, at: number): number {
    const length = bytes.readUIntBE(at, 3);
    if (length <= this.maxFrame) return HEAD_BYTES + length;
    throw new ProtocolFault(`a frame of ${length} bytes is too large`, ErrorCode.frameSize);
  }
}

/** The payload without what was added to hide its length. */
export function unpadded(payload: Buffer, flags: number): Buffer {
  if ((flags & Flag.padded) === 0) return payload;
  const end = payload.length - (payload[0] ?? 0);
  if (end < 1) throw new ProtocolFault('a frame is padded with more than it has');
  return payload.subarray(1, end);
}

/** The number a payload begins with. */
export function numberIn(payload: Buffer): number {
  if (payload.length < 4) throw new ProtocolFault('a frame is cut short', ErrorCode.frameSize);
  return payload.readUInt32BE(0);
}
