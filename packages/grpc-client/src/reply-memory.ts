import { GrpcCode, GrpcError } from './grpc-error.js';

/** Replies up to this size always fit, so that status queries work under load. */
const FREE_BYTES = 16 * 1024;

/** Limits the total memory of replies in transit, across all clients that share it. */
export class ReplyMemory {
  private bytes = 0;

  constructor(private readonly maxBytes: number) {}

  reserve(): ReplyReservation {
    return new ReplyReservation(this);
  }

  /** Returns whether the limit is kept. */
  add(bytes: number): boolean {
    this.bytes += bytes;
    return this.bytes <= this.maxBytes;
  }
}

/** The memory of one reply. */
export class ReplyReservation {
  private held = 0;

  constructor(private readonly memory: ReplyMemory) {}

  /** Adds bytes to the reservation; throws a `GrpcError` if the limit is exceeded. */
  grow(bytes: number): void {
    this.held += bytes;
    const isKept = this.memory.add(bytes);
    if (!isKept && this.held > FREE_BYTES) throw tooMuch();
  }

  /** Frees the reservation; may be called more than once. */
  release(): void {
    this.memory.add(-this.held);
    this.held = 0;
  }
}

function tooMuch(): GrpcError {
  const text = 'too many large replies are arriving at once; try again in a second';
  return new GrpcError(GrpcCode.unavailable, text, 'node');
}
