import { OracleClientError } from '../errors.js';

const MIN_DELAY_MS = 250;
const MAX_DELAY_MS = 8_000;
const RECONNECT_TIMEOUT_MS = 120_000;
/** Nothing has been promised yet: an oracle that is not there is told soon. */
const MAX_FIRST_ATTEMPTS = 3;

interface RetryOptions {
  readonly signal?: AbortSignal | undefined;
  readonly reconnectTimeoutMs?: number | undefined;
}

/** When to try again after a drop, and when to stop. */
export class RetryPolicy {
  private readonly options: RetryOptions;
  private hasBegun = false;
  private failures = 0;
  private failingSince = 0;

  constructor(options: RetryOptions) {
    this.options = options;
  }

  /** A frame came. */
  reset(): void {
    this.hasBegun = true;
    this.failures = 0;
  }

  /** Waits before the next attempt, or throws when there is to be none. */
  async waitOrThrow(error: unknown): Promise<void> {
    this.options.signal?.throwIfAborted();
    if (this.failures === 0) this.failingSince = performance.now();
    this.failures += 1;
    if (!this.isWorthAnother(error)) throw error;
    if (this.isTimeUp()) throw this.surrender(error);
    await sleepUntilOnline(this.wait(error), this.options.signal);
  }

  private isWorthAnother(error: unknown): boolean {
    if (!(error instanceof OracleClientError)) return false;
    const { code, status = 0 } = error;
    if (code === 'network_error') return true;
    // Before the turn has begun a refusal is the answer; after that it passes.
    return this.hasBegun && (status === 429 || status >= 500);
  }

  private isTimeUp(): boolean {
    if (!this.hasBegun) return this.failures >= MAX_FIRST_ATTEMPTS;
    const { reconnectTimeoutMs = RECONNECT_TIMEOUT_MS } = this.options;
    return performance.now() - this.failingSince > reconnectTimeoutMs;
  }

  private surrender(cause: unknown): unknown {
    if (!this.hasBegun) return cause;
    const message = 'The connection was lost; the turn goes on and can be joined again';
    return new OracleClientError('connection_lost', message, { cause });
  }

  private wait(error: unknown): number {
    const { retryAfterSeconds = 0 } = error as OracleClientError;
    const doubling = Math.min(MIN_DELAY_MS * 2 ** (this.failures - 1), MAX_DELAY_MS);
    // Spread, so that those who were dropped together do not come back together.
    return Math.max(doubling * (0.5 + Math.random() / 2), retryAfterSeconds * 1000);
  }
}

/** Waits; less when the caller leaves (then it throws) or when the network comes back. */
function sleepUntilOnline(ms: number, signal: AbortSignal | undefined): Promise<void> {
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
