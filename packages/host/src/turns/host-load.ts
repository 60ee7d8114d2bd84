/** How often the delay of the event loop is measured, and over what time it is averaged. */
const TICK_MS = 100;
const AVERAGED_MS = 1_000;

/** Longer delays of the event loop would be noticed by those whose turns run. */
const MAX_LOOP_DELAY_MS = 150;
/** From here on, an address without a free place is refused before its requests are read. */
const HIGH_LOOP_DELAY_MS = 30;
/** With fewer turns, something else delays the event loop, and refusing turns would not help. */
const FEW_TURNS = 64;

/** Writes of turns that start now would wait for longer than this. */
const MAX_STORE_DELAY_MS = 1_000;

/** Turns that begin before others are heard: each takes some milliseconds, and hundreds may be accepted at once. */
const STARTS_PER_LOOP = 4;

/** Begins a few turns in each pass of the event loop, so that a burst of them does not hold up all other requests. */
export class StartPace {
  private left = STARTS_PER_LOOP;
  private waiting: (() => void)[] = [];
  private isScheduled = false;

  run(start: () => void): void {
    this.schedule();
    if (this.left === 0) return void this.waiting.push(start);
    this.left -= 1;
    start();
  }

  private schedule(): void {
    if (this.isScheduled) return;
    this.isScheduled = true;
    setImmediate(() => {
      this.isScheduled = false;
      this.left = STARTS_PER_LOOP;
      for (const start of this.waiting.splice(0, STARTS_PER_LOOP)) this.run(start);
    });
  }
}

/** Measures whether this host has more work than it can do in time. */
export class HostLoad {
  private readonly estimateStoreDelay: () => number;
  private readonly timer: NodeJS.Timeout;
  private tickedAt = performance.now();
  private loopDelayMs = 0;

  constructor(estimateStoreDelay: () => number) {
    this.estimateStoreDelay = estimateStoreDelay;
    this.timer = setInterval(() => this.measureLoop(), TICK_MS).unref();
  }

  /** Whether one more turn would be one too many, beside those that this host executes and has queued. */
  isTooHigh(turns: number): boolean {
    if (this.estimateStoreDelay() > MAX_STORE_DELAY_MS) return true;
    return turns >= FEW_TURNS && this.loopDelayMs > MAX_LOOP_DELAY_MS;
  }

  /** Whether requests that will be refused should be refused at once. */
  isHigh(turns: number): boolean {
    return turns >= FEW_TURNS && this.loopDelayMs > HIGH_LOOP_DELAY_MS;
  }

  close(): void {
    clearInterval(this.timer);
  }

  private measureLoop(): void {
    const now = performance.now();
    const passedMs = now - this.tickedAt;
    this.tickedAt = now;
    const share = Math.min(1, passedMs / AVERAGED_MS);
    this.loopDelayMs += share * (Math.max(0, passedMs - TICK_MS) - this.loopDelayMs);
  }
}
