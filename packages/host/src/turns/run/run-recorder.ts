import { setTimeout as sleep } from 'node:timers/promises';
import { OracleError, type ReplyPart } from '@sibyl/protocol';
import { retry } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import type { AgentStep, InterruptAnswer, StepJournal } from '../../agent/steps.js';
import {
  type EventBus,
  endOfRun,
  type ServerEvent,
  toPosition,
  toServerEvent,
} from '../../bus/event-bus.js';
import type { Frame, UnsealedWrites } from '../../store/runs/frames.js';
import type { Pause } from '../../store/runs/pauses.js';
import type { EndedRun, Run, RunEnd } from '../../store/runs/run.js';
import type { RunStore } from '../../store/runs/run-store.js';
import type { Activity } from '../../store/schema/activity.js';
import type { CancelReason, RunKey } from '../../store/schema/runs.js';
import { classifyStoreError } from '../../store/store-errors.js';
import type { RanCall } from '../plugins/tool-policy.js';
import { createNotStoredError, createReport, NOT_STORED, type RunOutcome } from './run-end.js';
import { buildCacheInvalidation, buildDoneFrame, type RunLog, toFrames } from './run-log.js';

/** Memory limit for the frames of one run; the limit on characters stops long answers much earlier. */
const MAX_LOG_BYTES = 64 * 1024 * 1024;

/** Delays between attempts to store a run while the store is unavailable: doubled up to the last. */
const RETRIES = { firstMs: 200, lastMs: 2_000 };

/** How often a step that must be stored is tried again. */
const COMMIT_RETRY_MS = 100;

type Ending = Omit<RunEnd, 'frames'>;

interface LastWrite {
  readonly ending: Ending;
  /** The last frames of the log. */
  readonly last: readonly Frame[];
}

type DonePart = Extract<ReplyPart, { event: 'done' }>;

const LOG_FULL = 'The turn was stopped: its log became larger than this host keeps in memory.';

/** What the recorders of a host share. */
export interface Recording {
  readonly runs: RunStore;
  readonly flushes: FlushLoop;
  readonly events: EventBus;
  readonly logger: Logger;
  /** How long readers wait for an end that cannot be stored; not at all if the store is full or broken. */
  readonly storeWaitMs: number;
  /** Whether turns continue if this host crashes. */
  readonly isResumable: boolean;
  /** Whether the database has been away for so long that this host has stopped its turns. */
  readonly isStoreLost: () => boolean;
  /** Aborted when the host stops without waiting for its store any longer. */
  readonly shutdown: AbortSignal;
  /** Whether this host also executes the next run of a session. */
  readonly takesNext: () => boolean;
  /** Called when another host has taken a run over or ended it. */
  readonly onLost: (run: RunKey) => void;
  /** Called when a run was canceled on another host. */
  readonly onCanceled: (runId: string, reason: CancelReason) => void;
  /** Called with the next run of a session, which the end of the one before it promoted. */
  readonly onPromoted: (next: Run) => void;
}

/** The run whose frames a recorder writes. */
interface RecordedRun {
  readonly run: Run;
  readonly log: RunLog;
  /** Called when readers see that the end could not be stored; storing it is still retried. */
  settle(outcome: RunOutcome): void;
  /** Called when the log exceeds its memory limit. */
  fail(error: OracleError): void;
}

/** Writes a run's frames to its log and the session's sockets immediately, and to the store soon after. */
export class RunRecorder implements UnsavedRun {
  private frames: Frame[] = [];
  private steps: UnsealedWrites['steps'][number][] = [];
  private stepCount = 0;
  private activity: Activity[] = [];
  private isLost = false;
  private isEnding = false;
  /** The end to store; replaced if readers saw another one. */
  private lastWrite: LastWrite | undefined;
  private isShown = false;
  /** Whether an attempt to store the end has failed. */
  private hasFailed = false;

  constructor(
    private readonly active: RecordedRun,
    private readonly deps: Recording,
  ) {}

  get runId(): string {
    return this.active.run.runId;
  }

  /** Returns the event that the sockets received, if any; writes nothing once the run is ending. */
  write(part: ReplyPart): ServerEvent | undefined {
    if (this.isEnding || !this.hasRoomFor(part)) return undefined;
    this.frames.push(this.active.log.add(part.event, JSON.stringify(part.data)));
    this.deps.flushes.add(this);
    return this.publish(part);
  }

  /** The journal of the agent; `earlier` are the steps of earlier attempts. */
  openJournal(
    earlier: readonly AgentStep[],
    answers: ReadonlyMap<string, InterruptAnswer>,
  ): StepJournal {
    return {
      earlier,
      answers,
      isResumable: this.deps.isResumable,
      add: (value) => {
        this.stepCount += 1;
        this.steps.push({ step: this.stepCount, value });
        // Another attempt would not know that a tool has ended; nothing waits for it.
        if (value.type === 'result') void this.deps.flushes.flushNow(this);
        else this.deps.flushes.add(this);
      },
      commit: () => this.commit(),
    };
  }

  take(): UnsealedWrites {
    const { owner, runId } = this.active.run;
    const { frames, steps, activity } = this;
    const writes = { owner, runId, frames, steps, activity };
    this.frames = [];
    this.steps = [];
    this.activity = [];
    return writes;
  }

  putBack({ frames, steps, activity = [] }: UnsealedWrites): void {
    this.frames = [...frames, ...this.frames];
    this.steps = [...steps, ...this.steps];
    this.activity = [...activity, ...this.activity];
  }

  onLost(): void {
    this.isLost = true;
    this.deps.onLost(this.active.run);
  }

  onCanceled(reason: CancelReason): void {
    this.deps.onCanceled(this.runId, reason);
  }

  /** Records that a tool of the turn, or of a sub-agent, has run. */
  recordCall({ callId, tool, outcome }: RanCall): void {
    const { runs, flushes } = this.deps;
    const { owner, sessionId, runId } = this.active.run;
    this.activity.push({
      ...{ owner, sessionId, runId, id: runs.newId(), kind: 'tool_call' },
      ...{ toolCallId: callId, tool, outcome, createdAt: runs.now() },
    });
    if (!this.isEnding) flushes.add(this);
  }

  /** Waits until the store is available again: a tool must not run before the intent to run it is stored. */
  private async commit(): Promise<void> {
    const { flushes, shutdown } = this.deps;
    for (;;) {
      await flushes.flushNow(this);
      if (this.isLost || this.isEnding) throw new RunEndedElsewhereError();
      if (this.steps.length === 0) return;
      shutdown.throwIfAborted();
      await sleep(COMMIT_RETRY_MS);
    }
  }

  /** The `error` frame is written even if the log is full. */
  private hasRoomFor({ event }: ReplyPart): boolean {
    if (this.active.log.bytes < MAX_LOG_BYTES || event === 'error') return true;
    this.active.fail(new OracleError('turn_too_long', { message: LOG_FULL }));
    return false;
  }

  /**
   * Stores the outcome with the last frames before readers see `done`. If storing fails or hangs for too long, readers see
   * the run fail, and the failure is stored when the store is available again.
   */
  async end(ending: Ending, done: DonePart): Promise<Run> {
    this.isEnding = true;
    const { log } = this.active;
    const { runs, flushes, storeWaitMs, onPromoted } = this.deps;
    this.lastWrite = { ending, last: toFrames([done], log.lastSeq + 1) };
    const timer = setInterval(() => {
      if (this.hasFailed || !runs.isStoring(storeWaitMs)) this.showUnstored();
    }, storeWaitMs);
    try {
      await flushes.remove(this);
      const { run, next } = await this.storeEnd();
      if (this.isShown) this.publishChange(run);
      else log.add(done.event, JSON.stringify(done.data));
      if (next) onPromoted(next);
      return run;
    } catch (error) {
      if (!this.isShown) this.showLost(ending.message.content);
      throw error;
    } finally {
      clearInterval(timer);
      log.close();
    }
  }

  /**
   * Pauses the run with its last frames, `done` included; readers see them once they are stored. Undefined if it was canceled meanwhile or
   * the user has too many paused runs: then the run has to end.
   */
  async pause(pause: Pause, parts: readonly ReplyPart[]): Promise<Run | undefined> {
    this.isEnding = true;
    const { log } = this.active;
    await this.deps.flushes.remove(this);
    try {
      const paused = await this.storePause(pause, toFrames(parts, log.lastSeq + 1));
      this.isEnding = paused !== undefined;
      if (paused)
        for (const part of parts) {
          log.add(part.event, JSON.stringify(part.data));
          this.publish(part);
        }
      return paused;
    } catch (error) {
      this.showLost(pause.end.message.content);
      throw error;
    } finally {
      if (this.isEnding) log.close();
    }
  }

  private async storePause(pause: Pause, last: readonly Frame[]): Promise<Run | undefined> {
    const { activity } = this;
    const end = { ...pause.end, frames: [...this.frames, ...last], activity };
    return this.retry(() => this.tryToPause({ ...pause, end }));
  }

  private async tryToPause(pause: Pause): Promise<Run | undefined> {
    const { run } = this.active;
    const { runs, onCanceled } = this.deps;
    const result = await runs.pause({
      ...pause,
      owner: run.owner,
      runId: run.runId,
      steps: this.steps,
    });
    if (result.state === 'paused') return result.run;
    if (result.state === 'canceled') onCanceled(run.runId, result.reason);
    if (result.state !== 'lost') return undefined;
    // An attempt may have succeeded although its reply was lost.
    const stored = await runs.find(run);
    if (stored?.status !== 'paused') throw new RunEndedElsewhereError();
    return stored;
  }

  /** Retries until the end is stored or the host stops; meanwhile readers find the run in memory. */
  private storeEnd(): Promise<Pick<EndedRun, 'run' | 'next'>> {
    return this.retry(() => this.finish());
  }

  private retry<T>(write: () => Promise<T>): Promise<T> {
    const { shutdown: signal, isStoreLost } = this.deps;
    return retry(write, {
      ...RETRIES,
      signal,
      onFailure: (error, attempt) => {
        if (error instanceof RunEndedElsewhereError) throw error;
        this.hasFailed = true;
        if (signal.aborted) return;
        this.logFailure(error, attempt);
        if (!isTransient(error) || isStoreLost()) this.showUnstored();
      },
    });
  }

  private async finish(): Promise<Pick<EndedRun, 'run' | 'next'>> {
    const { run } = this.active;
    const { runs, takesNext } = this.deps;
    const { ending, last } = this.lastWrite as LastWrite;
    const frames = [...this.frames, ...last];
    const { activity } = this;
    const hasSteps = run.attempt > 1 || this.stepCount > 0;
    const whole = { ...ending, frames, hasSteps, activity };
    const finished = await runs.finish({
      owner: run.owner,
      runId: run.runId,
      end: whole,
      takesNext: takesNext(),
    });
    return finished ?? this.findStored(ending.status, last.at(-1)?.seq ?? null);
  }

  /** An attempt may have succeeded although its reply was lost; another host would have left a gap before its last frame. */
  private async findStored(
    status: Ending['status'],
    lastSeq: number | null,
  ): Promise<Pick<EndedRun, 'run' | 'next'>> {
    const { run } = this.active;
    const { runs } = this.deps;
    const stored = await runs.find(run);
    if (stored?.status !== status || stored.lastSeq !== lastSeq) throw new RunEndedElsewhereError();
    const current = await runs.current(run);
    return { run: stored, ...(current?.status === 'running' && { next: current }) };
  }

  /** Ends the run as failed for its readers, and replaces the end to store. */
  private showUnstored(): void {
    if (this.isShown || !this.lastWrite) return;
    this.isShown = true;
    const { run, log } = this.active;
    const { ending } = this.lastWrite;
    const failure = { kind: 'server', message: NOT_STORED } as const;
    const { sessionId, requestId } = run;
    const timestamp = new Date().toISOString();
    const text = ending.message.content;
    const parts: readonly ReplyPart[] = [
      {
        event: 'error',
        data: {
          error: NOT_STORED,
          kind: failure.kind,
          retryable: true,
          sessionId,
          requestId,
          timestamp,
        },
      },
      buildDoneFrame({ runId: run.runId, messageId: run.messageId, status: 'failed', text }),
    ];
    const last = parts.map((part) => log.add(part.event, JSON.stringify(part.data)));
    const { code } = createNotStoredError();
    const reason = { status: 'failed', code, message: NOT_STORED, kind: failure.kind } as const;
    const message = { ...ending.message, isComplete: false, error: reason };
    const { warnings = [] } = ending.report ?? {};
    const error = createNotStoredError();
    const report = createReport(warnings, error);
    this.lastWrite = {
      ending: {
        ...ending,
        message,
        status: 'failed',
        error: failure,
        report,
        trace: { ...ending.trace, cause: error.code },
      },
      last,
    };
    log.close();
    // Without the text: a JSON caller must send the message again.
    this.active.settle({ status: 'failed', messageId: undefined, text: '', warnings, error });
  }

  /** Readers saw a failure: makes pages that show the session reload it. */
  private publishChange(stored: Run): void {
    const { run } = this.active;
    const { event, data: payload } = buildCacheInvalidation(run, stored.messageId);
    this.deps.events.publish(run, { event, payload, position: endOfRun(run) });
  }

  /** The stored run differs from what readers saw: makes them reload it. */
  private showLost(text: string): void {
    const { run, log } = this.active;
    const changed = buildCacheInvalidation(run);
    log.add(changed.event, JSON.stringify(changed.data));
    this.publish(changed);
    const done = buildDoneFrame({
      runId: run.runId,
      messageId: undefined,
      status: 'interrupted',
      text,
    });
    log.add(done.event, JSON.stringify(done.data));
  }

  /** Sends the frame just added to the session's sockets. */
  private publish(part: ReplyPart): ServerEvent | undefined {
    const { run, log } = this.active;
    const event = toServerEvent(part, toPosition(run, log.lastSeq));
    if (event) this.deps.events.publish(run, event);
    return event;
  }

  /** One warning per run, without a stack: the store logs when an outage begins and ends. */
  private logFailure(error: unknown, attempt: number): void {
    const reason = error instanceof Error ? error.message : String(error);
    const level = attempt === 1 ? 'warn' : 'debug';
    this.deps.logger[level]({ reason, runId: this.runId }, 'outcome not stored yet');
  }
}

/** The session was deleted, or another host considered this one dead. */
class RunEndedElsewhereError extends Error {
  constructor() {
    super('the run was ended elsewhere');
  }
}

/** A full disk or a broken file requires the operator. */
const isTransient = (error: unknown) =>
  !['full', 'lasting'].includes(classifyStoreError(error) ?? 'passing');

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
