import { OracleClientError } from '../errors.js';

const MIN_DELAY_MS = 250;
const MAX_DELAY_MS = 8_000;
const RECONNECT_TIMEOUT_MS = 120_000;
/** Attempts before the turn starts: the user should learn quickly that the oracle is unreachable. */
const MAX_FIRST_ATTEMPTS = 3;

interface RetryOptions {
  readonly signal?: AbortSignal | undefined;
  readonly reconnectTimeoutMs?: number | undefined;
}

/** Decides when to retry after a failure, and when to stop. */
export class RetryPolicy {
  private readonly options: RetryOptions;
  private hasStarted = false;
  private failures = 0;
  private failingSince = 0;

  constructor(options: RetryOptions) {
    this.options = options;
  }

  /** Call after every received frame. */
  reset(): void {
    this.hasStarted = true;
    this.failures = 0;
  }

  /** Waits before the next attempt; throws if there is none. */
  async waitOrThrow(error: unknown): Promise<void> {
    this.options.signal?.throwIfAborted();
    if (this.failures === 0) this.failingSince = performance.now();
    this.failures += 1;
    if (!this.isRetryable(error)) throw error;
    if (this.isExhausted()) throw this.toFinalError(error);
    await sleepUntilOnline(this.getDelay(error), this.options.signal);
  }

  private isRetryable(error: unknown): boolean {
    if (!(error instanceof OracleClientError)) return false;
    const { code, status = 0 } = error;
    if (code === 'network_error') return true;
    // Before the turn starts, an error status is the answer, unless the caller waits without a limit; later it is temporary.
    return (this.hasStarted || this.isUnlimited()) && (status === 429 || status >= 500);
  }

  private isUnlimited(): boolean {
    return this.options.reconnectTimeoutMs === Number.POSITIVE_INFINITY;
  }

  private isExhausted(): boolean {
    const { reconnectTimeoutMs = RECONNECT_TIMEOUT_MS } = this.options;
    // Who waits without a limit also waits for the first connection, such as a page that is opened offline.
    if (this.isUnlimited()) return false;
    if (!this.hasStarted) return this.failures >= MAX_FIRST_ATTEMPTS;
    return performance.now() - this.failingSince > reconnectTimeoutMs;
  }

  private toFinalError(cause: unknown): unknown {
    if (!this.hasStarted) return cause;
    const message = 'Connection lost. The turn continues on the server and can be resumed.';
    return new OracleClientError('connection_lost', message, { cause });
  }

  private getDelay(error: unknown): number {
    const { retryAfterSeconds = 0 } = error as OracleClientError;
    const doubling = Math.min(MIN_DELAY_MS * 2 ** (this.failures - 1), MAX_DELAY_MS);
    // Jitter, so that clients that were disconnected together do not reconnect together.
    const jittered = doubling * (0.5 + Math.random() / 2);
    return Math.max(jittered, Math.min(retryAfterSeconds * 1000, RECONNECT_TIMEOUT_MS));
  }
}

/** Waits, at most until the network is back; throws when the signal aborts. */
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
