import { setTimeout as sleep } from 'node:timers/promises';

/** Node fires timers beyond this at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Work took longer than `withTimeout` allows. */
export class TimeoutError extends Error {
  override readonly name = 'TimeoutError';
}

export interface TimeLimit {
  readonly ms: number;
  /** The message of the `TimeoutError`. */
  readonly message: string;
  /** Ends the work earlier. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Settles as the work does. Rejects with a `TimeoutError` once the time is up and with the signal's reason once
 * that is aborted, even if the work ignores the signal it receives.
 */
export async function withTimeout<T>(
  { ms, message, signal }: TimeLimit,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const timeout = new AbortController();
  const timer = setTimeout(
    () => timeout.abort(new TimeoutError(message)),
    Math.min(ms, MAX_TIMER_MS),
  );
  const either = signal ? AbortSignal.any([signal, timeout.signal]) : timeout.signal;
  try {
    return await abortable(() => work(either), either);
  } finally {
    clearTimeout(timer);
  }
}

/** Whether work settles in time, fulfilled or rejected. */
export async function settlesWithin(ms: number, work: Promise<unknown>): Promise<boolean> {
  const settled = work.then(
    () => true,
    () => true,
  );
  return withTimeout({ ms, message: `not settled within ${ms} ms` }, () => settled).catch(
    () => false,
  );
}

/** Settles as the work does, or rejects with the signal's reason as soon as it is aborted. */
export function abortable<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
  // One promise instead of a race of several: a turn calls this many times.
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const started = work();
    const onAbort = () => reject(signal.reason);
    // The work may have aborted the signal.
    if (signal.aborted) onAbort();
    else signal.addEventListener('abort', onAbort, { once: true });
    const stopListening = () => signal.removeEventListener('abort', onAbort);
    started.then(
      (value) => {
        stopListening();
        resolve(value);
      },
      (error) => {
        stopListening();
        reject(error);
      },
    );
  });
}

/** Iterates over a source until an abort ends it at once with the signal's reason, even if the source ignores it. */
export function abortableIterable<T>(
  source: AsyncIterable<T>,
  signal: AbortSignal,
): AsyncIterable<T> {
  return { [Symbol.asyncIterator]: () => new AbortableIterator(source, signal) };
}

/** Not a generator: this runs for every token of every answer. */
class AbortableIterator<T> implements AsyncIterator<T> {
  private readonly source: AsyncIterator<T>;
  private reject: (reason: unknown) => void = () => undefined;

  constructor(
    source: AsyncIterable<T>,
    private readonly signal: AbortSignal,
  ) {
    this.source = source[Symbol.asyncIterator]();
    signal.addEventListener('abort', this.onAbort, { once: true });
  }

  next(): Promise<IteratorResult<T>> {
    if (this.signal.aborted) return Promise.reject(this.signal.reason);
    return new Promise((resolve, reject) => {
      this.reject = reject;
      this.source.next().then(
        (result) => {
          if (result.done) this.stopListening();
          resolve(result);
        },
        (error) => {
          this.stopListening();
          reject(error);
        },
      );
    });
  }

  async return(): Promise<IteratorResult<T>> {
    this.stopListening();
    this.closeSource();
    return { done: true, value: undefined };
  }

  private readonly onAbort = () => {
    this.closeSource();
    this.reject(this.signal.reason);
  };

  private stopListening(): void {
    this.signal.removeEventListener('abort', this.onAbort);
  }

  /** Not awaited: a source that hangs in its last step would block the caller. */
  private closeSource(): void {
    this.source.return?.().catch(() => undefined);
  }
}

/**
 * The reason of many aborts, created once: by default each would create an error with its stack, which costs more than all
 * that listens to it. Without a stack, since that would keep the code of a whole module in memory.
 */
export function createAbortReason(message: string): Error {
  return Object.assign(new Error(message), { stack: `Error: ${message}` });
}

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

interface WaitLimits {
  readonly signal?: AbortSignal;
  readonly ms?: number;
}

/**
 * Wakes those that wait for a change of something that they read themselves. To miss none, a reader reads, and waits if there
 * was nothing, without an `await` in between.
 */
export class ChangeSignal {
  private readonly waiting = new Set<(isChanged: boolean) => void>();

  /** Ends the waits in progress. */
  notify(): void {
    for (const end of [...this.waiting]) end(true);
  }

  /** Waits for the next change; false if the time is up or the signal is aborted first. */
  wait({ signal, ms }: WaitLimits = {}): Promise<boolean> {
    if (signal?.aborted) return Promise.resolve(false);
    return new Promise((resolve) => {
      const end = (isChanged: boolean) => {
        this.waiting.delete(end);
        clearTimeout(timer);
        signal?.removeEventListener('abort', stop);
        resolve(isChanged);
      };
      const stop = () => end(false);
      const timer = ms === undefined ? undefined : setTimeout(stop, ms);
      signal?.addEventListener('abort', stop, { once: true });
      this.waiting.add(end);
    });
  }
}
