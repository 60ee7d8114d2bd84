import { setTimeout as sleep } from 'node:timers/promises';

interface RetryOptions {
  /** The first delay; it doubles up to the last. */
  readonly firstMs: number;
  readonly lastMs: number;
  /** Unlimited by default. */
  readonly attempts?: number;
  /** Ends the delay: the attempt that follows is the last one. */
  readonly signal: AbortSignal;
  /** Called after each attempt that fails, the last one too; what it throws ends the attempts. */
  readonly onFailure?: (error: unknown, attempt: number) => void;
}

/** Repeats work until it succeeds; rejects as the last attempt does. */
export async function retry<T>(
  work: () => Promise<T>,
  { firstMs, lastMs, attempts = Number.POSITIVE_INFINITY, signal, onFailure }: RetryOptions,
): Promise<T> {
  for (let attempt = 1, wait = firstMs; ; attempt++, wait = Math.min(2 * wait, lastMs)) {
    try {
      return await work();
    } catch (error) {
      onFailure?.(error, attempt);
      if (attempt >= attempts || signal.aborted) throw error;
    }
    await sleep(wait, undefined, { signal }).catch(() => undefined);
  }
}
