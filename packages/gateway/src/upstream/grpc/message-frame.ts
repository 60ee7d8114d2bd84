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

/** Puts messages together from the pieces a stream delivers; a piece may be overwritten once it was taken. */
export class FrameReader {
  private readonly prefix = Buffer.allocUnsafe(PREFIX_BYTES);
  private prefixBytes = 0;
  private message: Buffer | undefined;
  private messageBytes = 0;

  /** `onMessage` is called with the size of each message before memory is taken for it; it may throw. */
  constructor(
    private readonly maxBytes: number,
    private readonly onMessage: (bytes: number) => void = () => {},
  ) {}

  /** Takes a piece and gives the messages it completes; throws on one that must not be read. */
  take(piece: Buffer): Buffer[] {
    const messages: Buffer[] = [];
    let at = 0;
    while (at < piece.length) {
      at += this.message ? this.fill(this.message, piece, at) : this.begin(piece, at);
      if (this.message?.length !== this.messageBytes) continue;
      messages.push(this.message);
      this.message = undefined;
      this.prefixBytes = 0;
    }
    return messages;
  }

  private begin(piece: Buffer, at: number): number {
    const taken = piece.copy(this.prefix, this.prefixBytes, at);
    this.prefixBytes += taken;
    if (this.prefixBytes === PREFIX_BYTES) this.message = Buffer.allocUnsafe(this.messageLength());
    this.messageBytes = 0;
    return taken;
  }

  private fill(message: Buffer, piece: Buffer, at: number): number {
    const taken = piece.copy(message, this.messageBytes, at);
    this.messageBytes += taken;
    return taken;
  }

  private messageLength(): number {
    if (this.prefix[0] !== 0) {
      throw new GrpcError(GrpcCode.internal, 'the node compressed a reply though nobody asked');
    }
    const length = this.prefix.readUInt32BE(1);
    if (length <= this.maxBytes) {
      this.onMessage(length);
      return length;
    }
    const text = `the reply has ${length} bytes, ${this.maxBytes} are allowed`;
    throw new GrpcError(GrpcCode.resourceExhausted, text);
  }
}
