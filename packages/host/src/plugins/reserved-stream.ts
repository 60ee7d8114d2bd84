/** Limits the streams of each user. */
export interface StreamSlots {
  /** Returns the function that releases the stream; throws if the user has none left. */
  take(owner: string): () => void;
}

/**
 * The stream of a request, reserved before its run starts: a client that is refused afterwards repeats its request and starts another
 * run. If nothing reads the run, the end of the request releases it.
 */
export class ReservedStream {
  private release: (() => void) | undefined;

  constructor(
    private readonly owner: string,
    /** Aborts when the request has ended; without it, nothing is reserved. */
    private readonly signal: AbortSignal | undefined,
  ) {}

  /** Throws if the user has no stream left. */
  reserve(slots: StreamSlots): void {
    if (this.release) return;
    const release = slots.take(this.owner);
    if (!this.signal || this.signal.aborted) release();
    else {
      this.release = release;
      this.signal.addEventListener('abort', () => this.handOver()?.(), { once: true });
    }
  }

  /** The reserved stream, or another one. */
  take(slots: StreamSlots): () => void {
    return this.handOver() ?? slots.take(this.owner);
  }

  private handOver(): (() => void) | undefined {
    const { release } = this;
    this.release = undefined;
    return release;
  }
}
