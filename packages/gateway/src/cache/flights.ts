interface Flight<T> {
  readonly outcome: Promise<T>;
  readonly cancel: AbortController;
  waiting: number;
}

/** Lets all who ask the same at the same time share one call, which ends when the last has gone. */
export class Flights<T> {
  private readonly running = new Map<string, Flight<T>>();

  isRunning(key: string): boolean {
    return this.running.has(key);
  }

  /** `onGone` is handed what is to be called if whoever asks here leaves. */
  share(
    key: string,
    start: (signal: AbortSignal) => Promise<T>,
    onGone?: (leave: () => void) => void,
  ): Promise<T> {
    const flight = this.running.get(key) ?? this.begin(key, start);
    flight.waiting += 1;
    onGone?.(() => this.leave(key, flight));
    return flight.outcome;
  }

  private begin(key: string, start: (signal: AbortSignal) => Promise<T>): Flight<T> {
    const cancel = new AbortController();
    const flight = { outcome: start(cancel.signal), cancel, waiting: 0 };
    const end = () => this.end(key, flight);
    flight.outcome.then(end, end);
    this.running.set(key, flight);
    return flight;
  }

  private leave(key: string, flight: Flight<T>): void {
    flight.waiting -= 1;
    if (flight.waiting > 0 || this.running.get(key) !== flight) return;
    // Whoever comes now must not join a call that is being cancelled.
    this.end(key, flight);
    flight.cancel.abort();
  }

  private end(key: string, flight: Flight<T>): void {
    if (this.running.get(key) === flight) this.running.delete(key);
  }
}
