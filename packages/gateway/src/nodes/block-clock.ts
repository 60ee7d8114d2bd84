/** Intervals that count. */
const KEPT = 16;
/** No block arrives before this share of the shortest interval; a smaller one while few intervals are known. */
const EARLIEST_SHARE = 0.75;
const FIRST_SHARE = 0.5;
const FEW = 8;
/** How long the first block after the start is expected at any time. */
const FIRST_BLOCK_MS = 10_000;
/** Polls begin at this share of the usual interval. */
const POLL_SHARE = 0.9;
/** Polls per interval while a block is due. */
const POLLS_PER_INTERVAL = 25;
const SHORTEST_POLL_MS = 20;
/** Interval between polls until the pace of the chain is known. */
const LEARNING_MS = 200;
/** A block that is late by this many intervals is not awaited with more polls than usual. */
const STALLED_INTERVALS = 3;
/** A block that is late by this many intervals is not expected at any moment. */
const OVERDUE_INTERVALS = 20;
/** A jump of more blocks says nothing about their pace, such as one after an outage. */
const MAX_JUMP = 10;

/** Learns the pace of a chain's blocks. Times are milliseconds of `performance.now()`. */
export class BlockClock {
  private readonly intervals: number[] = [];
  private height = 0;
  private arrivedAt = 0;
  /** The median interval. */
  private usual: number | undefined;
  /** Before this, the next block cannot arrive; it is in the past while the pace is unknown. */
  dueAt = 0;

  /** Records that a height was seen for the first time. */
  record(height: number, now: number): void {
    const blocks = height - this.height;
    if (this.height > 0 && blocks > 0 && blocks <= MAX_JUMP) {
      this.intervals.push((now - this.arrivedAt) / blocks);
      if (this.intervals.length > KEPT) this.intervals.shift();
    }
    if (blocks < 0) this.intervals.length = 0;
    this.height = height;
    this.arrivedAt = now;
    const sorted = this.intervals.toSorted((a, b) => a - b);
    this.usual = sorted[Math.floor(sorted.length / 2)];
    const share = sorted.length < FEW ? FIRST_SHARE : EARLIEST_SHARE;
    this.dueAt = now + share * (sorted[0] ?? 0);
  }

  /** Whether a block is due; none is while the chain has stalled. */
  isDue(now: number): boolean {
    const { usual } = this;
    const elapsed = now - this.arrivedAt;
    if (usual === undefined) return elapsed <= FIRST_BLOCK_MS;
    return now >= this.dueAt && elapsed <= OVERDUE_INTERVALS * usual;
  }

  /** The time to wait before the next poll: until the block is due, then often. */
  getPollDelay(now: number, longestMs: number): number {
    const { usual } = this;
    const elapsed = now - this.arrivedAt;
    if (usual === undefined) {
      return elapsed > FIRST_BLOCK_MS ? longestMs : Math.min(LEARNING_MS, longestMs);
    }
    if (elapsed > STALLED_INTERVALS * usual) return longestMs;
    const often = Math.max(SHORTEST_POLL_MS, usual / POLLS_PER_INTERVAL);
    return Math.min(longestMs, Math.max(often, POLL_SHARE * usual - elapsed));
  }
}
