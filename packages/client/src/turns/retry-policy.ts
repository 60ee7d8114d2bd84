import { OracleClientError } from '../errors.js';

const FIRST_WAIT_MS = 250;
const LAST_WAIT_MS = 8_000;
const GIVE_UP_AFTER_MS = 120_000;
/** Nothing has been promised yet: an oracle that is not there is told soon. */
const FIRST_TRIES = 3;

interface RetryOptions {
  readonly signal?: AbortSignal | undefined;
  readonly giveUpAfterMs?: number | undefined;
}

/** When to try again after a drop, and when to stop. */
export class Retries {
  readonly #options: RetryOptions;
  #hasBegun = false;
  #failures = 0;
  #failingSince = 0;

  constructor(options: RetryOptions) {
    this.#options = options;
  }

  /** A frame came. */
  succeeded(): void {
    this.#hasBegun = true;
    this.#failures = 0;
  }

  /** Waits before the next attempt, or throws when there is to be none. */
  async afterFailure(error: unknown): Promise<void> {
    this.#options.signal?.throwIfAborted();
    if (this.#failures === 0) this.#failingSince = performance.now();
    this.#failures += 1;
    if (!this.#isWorthAnother(error)) throw error;
    if (this.#isTimeUp()) throw this.#surrender(error);
    await pause(this.#wait(error), this.#options.signal);
  }

  #isWorthAnother(error: unknown): boolean {
    if (!(error instanceof OracleClientError)) return false;
    const { code, status = 0 } = error;
    if (code === 'network_error') return true;
    // Before the turn has begun a refusal is the answer; after that it passes.
    return this.#hasBegun && (status === 429 || status >= 500);
  }

  #isTimeUp(): boolean {
    if (!this.#hasBegun) return this.#failures >= FIRST_TRIES;
    const { giveUpAfterMs = GIVE_UP_AFTER_MS } = this.#options;
    return performance.now() - this.#failingSince > giveUpAfterMs;
  }

  #surrender(cause: unknown): unknown {
    if (!this.#hasBegun) return cause;
    const message = 'The connection was lost; the turn goes on and can be joined again';
    return new OracleClientError('connection_lost', message, { cause });
  }

  #wait(error: unknown): number {
    const { retryAfterSeconds = 0 } = error as OracleClientError;
    const doubling = Math.min(FIRST_WAIT_MS * 2 ** (this.#failures - 1), LAST_WAIT_MS);
    // Spread, so that those who were dropped together do not come back together.
    return Math.max(doubling * (0.5 + Math.random() / 2), retryAfterSeconds * 1000);
  }
}

/** Waits; less when the caller leaves (then it throws) or when the network comes back. */
function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', settle);
      globalThis.removeEventListener?.('online', settle);
      if (signal?.aborted) reject(signal.reason);
      else resolve();
    };
    const timer = setTimeout(settle, ms);
    signal?.addEventListener('abort', settle);
    globalThis.addEventListener?.('online', settle);
    if (signal?.aborted) settle();
  });
}
