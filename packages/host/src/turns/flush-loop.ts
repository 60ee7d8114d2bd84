import type { Logger } from 'pino';
import type { UnsealedWrites } from '../store/runs/frames.js';
import type { RunStore } from '../store/runs/run-store.js';
import type { CancelReason } from '../store/schema/runs.js';

/** Well under the 250 ms that the stream may be ahead of the store. */
const FLUSH_MS = 150;

/** Delays between attempts while the store is unavailable: doubled up to the last. */
const FIRST_RETRY_MS = 200;
const LAST_RETRY_MS = 2_000;

/** What one run has written and not stored yet. */
export interface UnsavedRun {
  readonly runId: string;
  /** Takes everything that is not stored yet. */
  take(): UnsealedWrites;
  /** Puts it back: it was not stored. */
  putBack(writes: UnsealedWrites): void;
  /** The run ended elsewhere, or another host has taken it over. */
  onLost(): void;
  /** A user or another turn canceled the run on any host. */
  onCanceled(reason: CancelReason): void;
}

/** Stores what all runs of this host write: one flush at a time, every 150 ms, or at once if a run waits for it. */
export class FlushLoop {
  private unsaved = new Set<UnsavedRun>();
  private timer: NodeJS.Timeout | undefined;
  private flushing: Promise<void> | undefined;
  /** The runs of the flush in progress. */
  private inFlight: ReadonlySet<UnsavedRun> = new Set();
  private retryMs = FIRST_RETRY_MS;

  constructor(
    private readonly runs: Pick<RunStore, 'flush'>,
    private readonly logger: Logger,
    /** Called after each flush with its size and duration. */
    private readonly onFlush: (runs: number, seconds: number) => void = () => {},
  ) {}

  /** Stores the run with the next flush. */
  add(run: UnsavedRun): void {
    this.unsaved.add(run);
    this.schedule(FLUSH_MS);
  }

  /** Waits until the flush in progress has ended, if the run is part of it, and excludes the run from later ones. */
  async remove(run: UnsavedRun): Promise<void> {
    this.unsaved.delete(run);
    while (this.inFlight.has(run)) await this.flushing;
    // A failed flush has put it back.
    this.unsaved.delete(run);
  }

  /** Starts a flush and waits for its end; the run may still be unsaved if the store is unavailable. */
  async flushNow(run: UnsavedRun): Promise<void> {
    this.unsaved.add(run);
    await this.flushing;
    if (this.unsaved.has(run)) await this.flush();
  }

  private schedule(ms: number): void {
    this.timer ??= setTimeout(() => {
      // Also if a slow flush is still in progress: its end sets the next timer.
      this.timer = undefined;
      void this.flush();
    }, ms);
  }

  private flush(): Promise<void> {
    this.flushing ??= this.flushAll().finally(() => {
      this.flushing = undefined;
      if (this.unsaved.size > 0)
        this.schedule(this.retryMs > FIRST_RETRY_MS ? this.retryMs : FLUSH_MS);
    });
    return this.flushing;
  }

  private async flushAll(): Promise<void> {
    clearTimeout(this.timer);
    this.timer = undefined;
    const runs = [...this.unsaved];
    if (runs.length === 0) return;
    this.unsaved = new Set();
    this.inFlight = new Set(runs);
    const writes = runs.map((run) => run.take());
    const startedAt = performance.now();
    try {
      const { lost, canceled } = await this.runs.flush(writes);
      this.retryMs = FIRST_RETRY_MS;
      const byId = new Map(runs.map((run) => [run.runId, run]));
      for (const runId of lost) byId.get(runId)?.onLost();
      for (const { runId, reason } of canceled) byId.get(runId)?.onCanceled(reason);
      this.onFlush(runs.length, (performance.now() - startedAt) / 1000);
    } catch (error) {
      this.putBack(runs, writes, error);
    } finally {
      this.inFlight = new Set();
    }
  }

  private putBack(
    runs: readonly UnsavedRun[],
    writes: readonly UnsealedWrites[],
    error: unknown,
  ): void {
    // One warning per outage, without a stack: the store logs when it begins and ends.
    const level = this.retryMs === FIRST_RETRY_MS ? 'warn' : 'debug';
    const reason = error instanceof Error ? error.message : String(error);
    this.logger[level]({ reason, runs: runs.length }, 'frames not stored; trying again');
    this.retryMs = Math.min(2 * this.retryMs, LAST_RETRY_MS);
    for (const [i, run] of runs.entries()) {
      run.putBack(writes[i] as UnsealedWrites);
      this.unsaved.add(run);
    }
  }
}
