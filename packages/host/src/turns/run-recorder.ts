import { setTimeout as sleep } from 'node:timers/promises';
import { type DoneFrame, OracleError, type PendingAnswer, type ReplyPart } from '@sibyl/protocol';
import { retry } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import type { AgentStep, InterruptAnswer, StepJournal } from '../agent/steps.js';
import {
  type EventBus,
  endOfRun,
  type ServerEvent,
  toPosition,
  toServerEvent,
} from '../bus/event-bus.js';
import { type Frame, type UnsealedWrites } from '../store/runs/frames.js';
import type { EndedRun, Run, RunEnding } from '../store/runs/run.js';
import type { RunStore } from '../store/runs/run-store.js';
import type { Activity } from '../store/schema/activity.js';
import type { CancelReason, TokenUsage } from '../store/schema/runs.js';
import { classifyStoreError } from '../store/store-errors.js';
import type { FlushLoop, UnsavedRun } from './flush-loop.js';
import { createReport, type RunLog, type RunOutcome } from './run-log.js';
import type { RanCall } from './tool-policy.js';

/** Memory limit for the frames of one run; the limit on characters stops long answers much earlier. */
const MAX_LOG_BYTES = 64 * 1024 * 1024;

/** Delays between attempts to store a run while the store is unavailable: doubled up to the last. */
const RETRIES = { firstMs: 200, lastMs: 2_000 };

/** How often a step that must be stored is tried again. */
const COMMIT_RETRY_MS = 100;

type Ending = Omit<RunEnding, 'frames'>;

interface LastWrite {
  readonly ending: Ending;
  /** The last frames of the log. */
  readonly last: readonly Frame[];
}

/** What is stored when a run pauses, besides what the recorder knows. */
export type RunPause = Omit<Parameters<RunStore['pause']>[0], 'owner' | 'runId' | 'steps'>;

type DonePart = Extract<ReplyPart, { event: 'done' }>;

const LOG_FULL = 'The turn was stopped: its log became larger than this host keeps in memory.';

interface RunRecorderDeps {
  readonly run: Run;
  readonly log: RunLog;
  readonly runs: RunStore;
  readonly flushes: FlushLoop;
  readonly events: EventBus;
  readonly logger: Logger;
  /** How long readers wait for an end that cannot be stored; not at all if the store is full or broken. */
  readonly storeWaitMs: number;
  /** Whether the turn continues if this host crashes. */
  readonly isResumable: boolean;
  /** Whether the database has been away for so long that this host has stopped its turns. */
  readonly isStoreLost: () => boolean;
  /** Aborted when the host stops without waiting for its store any longer. */
  readonly shutdown: AbortSignal;
  /** Whether this host also executes the next run of the session. */
  readonly takesNext: () => boolean;
  /** Called when another host has taken the run over or ended it. */
  readonly onLost: () => void;
  /** Called when the run was canceled on another host. */
  readonly onCanceled: (reason: CancelReason) => void;
  /** Called when readers see that the end could not be stored; storing it is still retried. */
  readonly onUnstored: (outcome: RunOutcome) => void;
  /** Called when the log exceeds its memory limit. */
  readonly onFull: (error: OracleError) => void;
  /** Called with the next run of the session, which the end of this one promoted. */
  readonly onPromoted: (next: Run) => void;
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

  constructor(private readonly deps: RunRecorderDeps) {}

  get runId(): string {
    return this.deps.run.runId;
  }

  /** Returns the event that the sockets received, if any; writes nothing once the run is ending. */
  write(part: ReplyPart): ServerEvent | undefined {
    if (this.isEnding || !this.hasRoomFor(part)) return undefined;
    this.frames.push(this.deps.log.add(part.event, JSON.stringify(part.data)));
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
    const { owner, runId } = this.deps.run;
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
    this.deps.onLost();
  }

  onCanceled(reason: CancelReason): void {
    this.deps.onCanceled(reason);
  }

  /** Records that a tool of the turn, or of a sub-agent, has run. */
  recordCall({ callId, tool, outcome }: RanCall): void {
    const { run, runs, flushes } = this.deps;
    const { owner, sessionId, runId } = run;
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
    const { log, onFull } = this.deps;
    if (log.bytes < MAX_LOG_BYTES || event === 'error') return true;
    onFull(new OracleError('turn_too_long', { message: LOG_FULL }));
    return false;
  }

  /**
   * Stores the outcome with the last frames before readers see `done`. If storing fails or hangs for too long, readers see
   * the run fail, and the failure is stored when the store is available again.
   */
  async end(ending: Ending, done: DonePart): Promise<Run> {
    this.isEnding = true;
    const { runs, flushes, log, storeWaitMs, onPromoted } = this.deps;
    this.lastWrite = { ending, last: [toFrame(done, log.lastSeq + 1)] };
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
  async pause(pause: RunPause, parts: readonly ReplyPart[]): Promise<Run | undefined> {
    this.isEnding = true;
    const { flushes, log } = this.deps;
    await flushes.remove(this);
    try {
      const last = parts.map((part, i) => toFrame(part, log.lastSeq + 1 + i));
      const paused = await this.storePause(pause, last);
      this.isEnding = paused !== undefined;
      if (paused)
        for (const part of parts) {
          log.add(part.event, JSON.stringify(part.data));
          this.publish(part);
        }
      return paused;
    } catch (error) {
      this.showLost(pause.ending.message.content);
      throw error;
    } finally {
      if (this.isEnding) log.close();
    }
  }

  private async storePause(pause: RunPause, last: readonly Frame[]): Promise<Run | undefined> {
    const { activity } = this;
    const ending = { ...pause.ending, frames: [...this.frames, ...last], activity };
    return this.retry(() => this.tryToPause({ ...pause, ending }));
  }

  private async tryToPause(pause: RunPause): Promise<Run | undefined> {
    const { run, runs, onCanceled } = this.deps;
    const result = await runs.pause({
      ...pause,
      owner: run.owner,
      runId: run.runId,
      steps: this.steps,
    });
    if (result.state === 'paused') return result.run;
    if (result.state === 'canceled') onCanceled(result.reason);
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
    const { run, runs, takesNext } = this.deps;
    const { ending, last } = this.lastWrite as LastWrite;
    const frames = [...this.frames, ...last];
    const { activity } = this;
    const hasSteps = run.attempt > 1 || this.stepCount > 0;
    const whole = { ...ending, frames, hasSteps, activity };
    const finished = await runs.finish({
      owner: run.owner,
      runId: run.runId,
      ending: whole,
      takesNext: takesNext(),
    });
    return finished ?? this.findStored(ending.status, last.at(-1)?.seq ?? null);
  }

  /** An attempt may have succeeded although its reply was lost; another host would have left a gap before its last frame. */
  private async findStored(
    status: Ending['status'],
    lastSeq: number | null,
  ): Promise<Pick<EndedRun, 'run' | 'next'>> {
    const { run, runs } = this.deps;
    const stored = await runs.find(run);
    if (stored?.status !== status || stored.lastSeq !== lastSeq) throw new RunEndedElsewhereError();
    const current = await runs.current(run);
    return { run: stored, ...(current?.status === 'running' && { next: current }) };
  }

  /** Ends the run as failed for its readers, and replaces the end to store. */
  private showUnstored(): void {
    if (this.isShown || !this.lastWrite) return;
    this.isShown = true;
    const { run, log, onUnstored } = this.deps;
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
    onUnstored({ status: 'failed', messageId: undefined, text: '', warnings, error });
  }

  /** Readers saw a failure: makes pages that show the session reload it. */
  private publishChange(stored: Run): void {
    const { run, events } = this.deps;
    const { event, data: payload } = buildCacheInvalidation(run, stored.messageId);
    events.publish(run, { event, payload, position: endOfRun(run) });
  }

  /** The stored run differs from what readers saw: makes them reload it. */
  private showLost(text: string): void {
    const { run, log } = this.deps;
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
    const { run, log, events } = this.deps;
    const event = toServerEvent(part, toPosition(run, log.lastSeq));
    if (event) events.publish(run, event);
    return event;
  }

  /** One warning per run, without a stack: the store logs when an outage begins and ends. */
  private logFailure(error: unknown, attempt: number): void {
    const reason = error instanceof Error ? error.message : String(error);
    const level = attempt === 1 ? 'warn' : 'debug';
    this.deps.logger[level]({ reason, runId: this.deps.run.runId }, 'outcome not stored yet');
  }
}

/** The session was deleted, or another host considered this one dead. */
class RunEndedElsewhereError extends Error {
  constructor() {
    super('the run was ended elsewhere');
  }
}

const NOT_STORED = 'The answer could not be stored. Try again.';

/** The error for a JSON caller if the end of its turn could not be stored. */
export const createNotStoredError = (): OracleError =>
  new OracleError('store_unavailable', { message: NOT_STORED, retryAfterSeconds: 5 });

/** What a JSON caller receives then. */
export const createUnstoredOutcome = (): RunOutcome => ({
  status: 'failed',
  messageId: undefined,
  text: '',
  warnings: [],
  error: createNotStoredError(),
});

const toFrame = ({ event, data }: ReplyPart, seq: number): Frame => ({
  seq,
  event,
  data: JSON.stringify(data),
});

/** A full disk or a broken file requires the operator. */
const isTransient = (error: unknown) =>
  !['full', 'lasting'].includes(classifyStoreError(error) ?? 'passing');

interface DoneFields {
  readonly runId: string;
  readonly messageId: string | undefined;
  readonly status: DoneFrame['status'];
  /** The answer, possibly incomplete. */
  readonly text: string;
  /** What a paused run waits for. */
  readonly pending?: readonly PendingAnswer[] | undefined;
  readonly usage?: TokenUsage | undefined;
}

/** Builds the first frame of a run. */
export function buildRunFrame({ runId, sessionId, requestId }: Run) {
  return { event: 'run', data: { runId, sessionId, requestId } } as const satisfies ReplyPart;
}

/** Builds the frame after which readers continue with another attempt, or after a crash: they keep `partial`. */
export function buildResumedFrame(run: Run, partial: string) {
  const { event, data } = buildRunFrame(run);
  const { attempt } = run;
  return {
    event,
    data: { ...data, resumed: true, attempt, partialLength: partial.length },
  } as const satisfies ReplyPart;
}

/** Builds the last frame of a run. */
export function buildDoneFrame({ runId, messageId, status, text, pending, usage }: DoneFields) {
  const data: DoneFrame = {
    runId,
    ...(messageId !== undefined && { messageId }),
    status,
    ...(status !== 'finished' && { [status]: true, partialText: text }),
    ...(pending && { pending: [...pending] }),
    ...toUsageField(usage),
  };
  return { event: 'done', data } as const satisfies ReplyPart;
}

/** The usage of a run as clients see it; nothing if no model was called. */
export function toUsageField(usage: TokenUsage | undefined): Pick<DoneFrame, 'usage'> {
  if (!usage || usage.input + usage.output === 0) return {};
  const { input: inputTokens, output: outputTokens, cached: cachedTokens, cost } = usage;
  return {
    usage: { inputTokens, outputTokens, cachedTokens, ...(cost !== undefined && { cost }) },
  };
}

/** Builds the frame that makes clients reload a run that is stored differently than it was shown. */
export function buildCacheInvalidation(
  { sessionId, requestId }: Pick<Run, 'sessionId' | 'requestId'>,
  messageId?: string,
) {
  return {
    event: 'message_cache_invalidation',
    data: {
      sessionId,
      requestId,
      ...(messageId !== undefined && { messageIds: [messageId] }),
      status: 'done',
    },
  } as const satisfies ReplyPart;
}
