import { textBytes } from '@sibyl/server-kit';
import type { Frame } from '../../store/runs/frames.js';

/** What a frame takes in memory beside its text. */
const FRAME_BYTES = 80;

/** The frames of a run under way, in memory; any number of readers, each at its own pace. */
export class RunLog {
  readonly #frames: Frame[] = [];
  #waiting: (() => void)[] = [];
  #isClosed = false;
  #bytes = 0;

  /** The memory that the frames take, estimated. */
  get bytes(): number {
    return this.#bytes;
  }

  get lastSeq(): number {
    return this.#frames.length;
  }

  add(event: string, data: string): Frame {
    const frame = { seq: this.#frames.length + 1, event, data };
    this.#frames.push(frame);
    this.#bytes += FRAME_BYTES + textBytes(data);
    this.#wake();
    return frame;
  }

  /** What is there above `after`. */
  since(after: number): readonly Frame[] {
    return this.#frames.slice(after);
  }

  /** No frame follows. */
  close(): void {
    this.#isClosed = true;
    this.#wake();
  }

  /** Yields what is there above `after`, then what comes, until the log closes or the signal fires. */
  async *read(after: number, signal: AbortSignal): AsyncGenerator<readonly Frame[]> {
    const wake = () => this.#wake();
    signal.addEventListener('abort', wake, { once: true });
    try {
      let seen = Math.min(after, this.#frames.length);
      while (!signal.aborted) {
        const fresh = this.#frames.slice(seen);
        seen += fresh.length;
        if (fresh.length > 0) yield fresh;
        else if (this.#isClosed) return;
        else await new Promise<void>((resolve) => this.#waiting.push(resolve));
      }
    } finally {
      signal.removeEventListener('abort', wake);
    }
  }

  #wake(): void {
    if (this.#waiting.length === 0) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }
}
