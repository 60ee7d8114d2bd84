/** How often the delay of the event loop is measured, and over what time it is averaged. */
const TICK_MS = 100;
const AVERAGED_MS = 1_000;

/** Longer delays of the event loop would be noticed by those whose turns run. */
const MAX_LOOP_DELAY_MS = 150;
/** With fewer turns, something else delays the event loop, and refusing turns would not help. */
const FEW_TURNS = 64;

/** Writes of turns that start now would wait for longer than this. */
const MAX_STORE_DELAY_MS = 1_000;

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
