import { textBytes } from '@sibyl/server-kit';

interface Flight<T> {
  readonly outcome: Promise<T>;
  readonly cancel: AbortController;
  waiting: number;
}

/** One caller's share in a call. */
export interface Seat<T> {
  readonly outcome: Promise<T>;
  /** Stops waiting; the call ends when the last caller has left. May be called more than once. */
  leave(): void;
}

export interface FlightLimits {
  readonly maxCalls: number;
  /** What the keys of all calls together may take. */
  readonly maxKeyBytes: number;
}

/** Shares one call between all callers that ask the same at the same time. */
export class Flights<T> {
  private readonly running = new Map<string, Flight<T>>();
  private keyBytes = 0;

  constructor(private readonly limits: FlightLimits) {}

  isRunning(key: string): boolean {
    return this.running.has(key);
  }

  /** Whether a call with this key may begin now. */
  hasRoomFor(key: string): boolean {
    const { maxCalls, maxKeyBytes } = this.limits;
    return this.running.size < maxCalls && this.keyBytes + textBytes(key) <= maxKeyBytes;
  }

  share(key: string, start: (signal: AbortSignal) => Promise<T>): Seat<T> {
    const flight = this.running.get(key) ?? this.begin(key, start);
    flight.waiting += 1;
    let isSeated = true;
    const leave = () => {
      if (isSeated) this.leave(key, flight);
      isSeated = false;
    };
    return { outcome: flight.outcome, leave };
  }

  private begin(key: string, start: (signal: AbortSignal) => Promise<T>): Flight<T> {
    const cancel = new AbortController();
    const flight = { outcome: start(cancel.signal), cancel, waiting: 0 };
    const end = () => this.end(key, flight);
    flight.outcome.then(end, end);
    this.running.set(key, flight);
    this.keyBytes += textBytes(key);
    return flight;
  }

  private leave(key: string, flight: Flight<T>): void {
    flight.waiting -= 1;
    if (flight.waiting > 0 || this.running.get(key) !== flight) return;
    // A caller that comes now must not join a call that is being cancelled.
    this.end(key, flight);
    flight.cancel.abort();
  }

  private end(key: string, flight: Flight<T>): void {
    if (this.running.get(key) !== flight) return;
    this.running.delete(key);
    this.keyBytes -= textBytes(key);
  }
}
