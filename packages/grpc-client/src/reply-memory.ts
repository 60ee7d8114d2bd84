import { GrpcCode, GrpcError } from './grpc-error.js';

/** Replies up to this size always fit, so that status queries work under load. */
const FREE_BYTES = 16 * 1024;

/** Limits the total memory of replies in transit, across all clients that share it. */
export class ReplyMemory {
  private bytes = 0;

  constructor(private readonly maxBytes: number) {}

  reserve(): ReplyReservation {
    let held = 0;
    return {
      grow: (bytes) => {
        held += bytes;
        this.bytes += bytes;
        if (held > FREE_BYTES && this.bytes > this.maxBytes) throw tooMuch();
      },
      release: () => {
        this.bytes -= held;
        held = 0;
      },
    };
  }
}

export interface ReplyReservation {
  /** Adds bytes to the reservation; throws a `GrpcError` if the limit is exceeded. */
  grow(bytes: number): void;
  /** Frees the reservation; may be called more than once. */
  release(): void;
}

function tooMuch(): GrpcError {
  const text = 'too many large replies are arriving at once; try again in a second';
  return new GrpcError(GrpcCode.unavailable, text, 'node');
}
