/** Node fires timers beyond this at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

export interface TimeLimit {
  readonly ms: number;
  /** What is said of work that took longer. */
  readonly fault: string;
  readonly signal: AbortSignal;
}

/** Does work that ends with the signal or when its time is up, even if it does not listen. */
export async function inTime<T>(
  { ms, fault, signal }: TimeLimit,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const overdue = new AbortController();
  const timer = setTimeout(() => overdue.abort(new Error(fault)), Math.min(ms, LONGEST_TIMER_MS));
  const both = AbortSignal.any([signal, overdue.signal]);
  try {
    return await untilAborted(() => work(both), both);
  } finally {
    clearTimeout(timer);
  }
}

/** Settles as the work does, or rejects with the signal's reason as soon as it is aborted. */
export async function untilAborted<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  const aborted = Promise.withResolvers<never>();
  const leave = () => aborted.reject(signal.reason);
  signal.addEventListener('abort', leave, { once: true });
  try {
    return await Promise.race([work(), aborted.promise]);
  } finally {
    signal.removeEventListener('abort', leave);
  }
}

/** Reads a stream that an abort ends at once with the signal's reason, even if the source does not listen. */
export function endWith<T>(source: AsyncIterable<T>, signal: AbortSignal): AsyncIterable<T> {
  return { [Symbol.asyncIterator]: () => new EndableReader(source, signal) };
}

/** By hand, not by a generator: this sits between every token and its reader. */
class EndableReader<T> implements AsyncIterator<T> {
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
        (fault) => {
          this.stopListening();
          reject(fault);
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

  /** Not waited for: a source stuck in its last step would hold the turn. */
  private closeSource(): void {
    this.source.return?.().catch(() => undefined);
  }
}
