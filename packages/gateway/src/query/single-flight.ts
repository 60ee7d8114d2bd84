import type { CancelSignal } from '@sibyl/grpc-client';
import { textBytes } from '@sibyl/server-kit';

/** Cancels one call; an AbortController takes longer to create than a small query to bind. */
class Cancellation implements CancelSignal {
  aborted = false;
  private listener: (() => void) | undefined;

  /** Only one at a time. */
  addEventListener(_type: 'abort', listener: () => void): void {
    this.listener = listener;
  }

  removeEventListener(): void {
    this.listener = undefined;
  }

  abort(): void {
    this.aborted = true;
    this.listener?.();
  }
}

interface SharedCall<T> {
  readonly outcome: Promise<T>;
  readonly cancel: Cancellation;
  waiting: number;
}

/** One caller's view of a shared call. */
export interface SharedResult<T> {
  readonly outcome: Promise<T>;
  /** Stops waiting; cancels the call if this was the last caller. May be called more than once. */
  leave(): void;
}

export interface SingleFlightLimits {
  readonly maxCalls: number;
  /** Limit for the keys of all calls together. */
  readonly maxKeyBytes: number;
}

/** Shares one call between all concurrent callers with the same key. */
export class SingleFlight<T> {
  private readonly running = new Map<string, SharedCall<T>>();
  private keyBytes = 0;

  constructor(private readonly limits: SingleFlightLimits) {}

  isRunning(key: string): boolean {
    return this.running.has(key);
  }

  /** Whether the limits allow a new call with this key. */
  canStart(key: string): boolean {
    const { maxCalls, maxKeyBytes } = this.limits;
    return this.running.size < maxCalls && this.keyBytes + textBytes(key) <= maxKeyBytes;
  }

  share(key: string, start: (signal: CancelSignal) => Promise<T>): SharedResult<T> {
    const call = this.running.get(key) ?? this.begin(key, start);
    call.waiting += 1;
    let isWaiting = true;
    const leave = () => {
      if (isWaiting) this.leave(key, call);
      isWaiting = false;
    };
    return { outcome: call.outcome, leave };
  }

  private begin(key: string, start: (signal: CancelSignal) => Promise<T>): SharedCall<T> {
    const cancel = new Cancellation();
    const call = { outcome: start(cancel), cancel, waiting: 0 };
    const end = () => this.end(key, call);
    call.outcome.then(end, end);
    this.running.set(key, call);
    this.keyBytes += textBytes(key);
    return call;
  }

  private leave(key: string, call: SharedCall<T>): void {
    call.waiting -= 1;
    if (call.waiting > 0 || this.running.get(key) !== call) return;
    // New callers must not join a canceled call.
    this.end(key, call);
    call.cancel.abort();
  }

  private end(key: string, call: SharedCall<T>): void {
    if (this.running.get(key) !== call) return;
    this.running.delete(key);
    this.keyBytes -= textBytes(key);
  }
}
