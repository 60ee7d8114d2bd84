import { ErrorCode, Flag, ProtocolFault } from './protocol.js';

export interface FrameHead {
  readonly type: number;
  readonly flags: number;
  readonly streamId: number;
}

/** The length, type, flags and stream before every payload. */
const HEAD_BYTES = 9;

/** Encodes the head of a frame whose payload has so many bytes. */
export function headOf({ type, flags, streamId }: FrameHead, length: number): Buffer {
  const head = Buffer.allocUnsafe(HEAD_BYTES);
  head.writeUIntBE(length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(streamId, 5);
  return head;
}

/** Cuts what arrives into frames. */
export class FrameSplitter {
  private rest: Buffer | undefined;

  constructor(
    private readonly maxFrame: number,
    private readonly onFrame: (head: FrameHead, payload: Buffer) => void,
  ) {}

  take(piece: Buffer): void {
    const bytes = this.rest ? Buffer.concat([this.rest, piece]) : piece;
    this.rest = undefined;
    let at = 0;
    while (bytes.length - at >= HEAD_BYTES) {
      const end = at + HEAD_BYTES + this.lengthAt(bytes, at);
      if (end > bytes.length) break;
      const streamId = bytes.readUInt32BE(at + 5) & 0x7fffffff;
      const head = { type: bytes[at + 3] ?? 0, flags: bytes[at + 4] ?? 0, streamId };
      this.onFrame(head, bytes.subarray(at + HEAD_BYTES, end));
      at = end;
    }
    if (at < bytes.length) this.rest = bytes.subarray(at);
  }

  private lengthAt(bytes: Buffer, at: number): number {
    const length = bytes.readUIntBE(at, 3);
    if (length <= this.maxFrame) return length;
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
