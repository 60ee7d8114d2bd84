import { GrpcCode, GrpcError } from '../grpc-error.js';

/** The flag of compression and the length, before every message. */
const PREFIX_BYTES = 5;

/** A message as gRPC sends it. */
export function frameOf(message: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(PREFIX_BYTES + message.length);
  frame[0] = 0;
  frame.writeUInt32BE(message.length, 1);
  frame.set(message, PREFIX_BYTES);
  return frame;
}

/** Puts messages together from the pieces a stream delivers. */
export class FrameReader {
  private pieces: Buffer[] = [];
  private held = 0;
  private wanted = PREFIX_BYTES;

  constructor(private readonly maxBytes: number) {}

  /** Whether a message has begun that is not complete. */
  get isWithinMessage(): boolean {
    return this.held > 0;
  }

  /** Takes a piece and gives the messages it completes; throws on one that must not be read. */
  take(piece: Buffer): Buffer[] {
    this.pieces.push(piece);
    this.held += piece.length;
    const messages: Buffer[] = [];
    while (this.held >= this.wanted) {
      const bytes = this.pieces.length === 1 ? piece : Buffer.concat(this.pieces);
      const end = PREFIX_BYTES + this.lengthOf(bytes);
      if (bytes.length < end) {
        this.keep(bytes, end);
        break;
      }
      messages.push(bytes.subarray(PREFIX_BYTES, end));
      piece = bytes.subarray(end);
      this.keep(piece, PREFIX_BYTES);
    }
    return messages;
  }

  private keep(rest: Buffer, wanted: number): void {
    this.pieces = rest.length > 0 ? [rest] : [];
    this.held = rest.length;
    this.wanted = wanted;
  }

  private lengthOf(frame: Buffer): number {
    if (frame[0] !== 0) {
      throw new GrpcError(GrpcCode.internal, 'the node compressed a reply though nobody asked');
    }
    const length = frame.readUInt32BE(1);
    if (length <= this.maxBytes) return length;
    const text = `the reply has ${length} bytes, ${this.maxBytes} are allowed`;
    throw new GrpcError(GrpcCode.resourceExhausted, text);
  }
}
