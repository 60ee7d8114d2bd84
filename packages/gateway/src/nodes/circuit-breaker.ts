/** Consecutive failures that open the circuit. */
const FAILURES_IN_A_ROW = 3;
/** Calls that fail together, as on a lost connection, count as one failure. */
const TOGETHER_MS = 20;
/** Share of failures that opens the circuit, after a minimum number of calls. */
const FAILURE_SHARE = 0.5;
const LEAST_CALLS = 20;
/** Half-life of call counts. */
const HALF_LIFE_MS = 5000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 30_000;

/** Stops calls to a failing node until a probe after a pause succeeds. */
export class CircuitBreaker {
  private calls = 0;
  private failures = 0;
  private countedAt = 0;
  private inARow = 0;
  private failedAt = Number.NEGATIVE_INFINITY;
  private openings = 0;
  private pauseUntil = 0;

  isOpen = false;

  constructor(private readonly now: () => number = () => performance.now()) {}

  /** The share of recent calls that failed. */
  get errorRate(): number {
    this.fade();
    return this.calls < 0.01 ? 0 : this.failures / this.calls;
  }

  succeeded(): void {
    this.fade();
    this.calls += 1;
    this.inARow = 0;
  }

  failed(): void {
    this.fade();
    this.calls += 1;
    this.failures += 1;
    if (this.now() - this.failedAt >= TOGETHER_MS) this.inARow += 1;
    this.failedAt = this.now();
    const isMostlyFailing = this.calls >= LEAST_CALLS && this.errorRate >= FAILURE_SHARE;
    if (this.inARow >= FAILURES_IN_A_ROW || isMostlyFailing) this.open();
  }

  /** Records a successful probe, which closes the circuit after the pause. */
  probed(): void {
    if (this.isOpen && this.now() < this.pauseUntil) return;
    if (this.isOpen) this.calls = this.failures = 0;
    else if (this.errorRate < FAILURE_SHARE / 5) this.openings = 0;
    this.isOpen = false;
    this.inARow = 0;
  }

  private open(): void {
    if (this.isOpen) return;
    this.isOpen = true;
    this.pauseUntil = this.now() + Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.openings);
    this.openings += 1;
  }

  private fade(): void {
    const now = this.now();
    const weight = 0.5 ** ((now - this.countedAt) / HALF_LIFE_MS);
    this.calls *= weight;
    this.failures *= weight;
    this.countedAt = now;
  }
}
