import { GrpcCode, GrpcError } from './grpc-error.js';

/** Smaller replies always have room, such as those that say how a node is. */
const FREE_BYTES = 16 * 1024;

/** The memory of replies that are arriving from all nodes, limited together. */
export class ReplyMemory {
  private bytes = 0;

  constructor(private readonly maxBytes: number) {}

  /** Memory for one reply. */
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
  /** Takes more memory, or throws an error that is the gateway's and not the node's. */
  grow(bytes: number): void;
  /** Gives all of it back; may be called more than once. */
  release(): void;
}

function tooMuch(): GrpcError {
  const text = 'too many large replies are arriving at once; try again in a second';
  return new GrpcError(GrpcCode.unavailable, text, 'node');
}
