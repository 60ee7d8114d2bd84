import { setTimeout as sleep } from 'node:timers/promises';
import { type DoneFrame, OracleError, type ReplyPart } from '@sibyl/protocol';
import type { Logger } from 'pino';
import { type EventBus, endOfTurn, type ServerEvent, toServerEvent } from '../bus/event-bus.js';
import type { RunEnding } from '../store/runs/finish-run.js';
import type { Frame } from '../store/runs/frames.js';
import type { Run } from '../store/runs/run.js';
import type { RunStore } from '../store/runs/run-store.js';
import { classifyStoreError } from '../store/store-errors.js';
import { createReport, type RunLog, type RunOutcome } from './run-log.js';

/** Well under the 250 ms that the stream may be ahead of the store (contract B4). */
const FLUSH_MS = 150;

/** Memory limit for the frames of one run; the limit on characters stops long answers much earlier. */
const MAX_LOG_BYTES = 64 * 1024 * 1024;

/** Delays between attempts to store a run while the store is unavailable: doubled up to the last. */
const FIRST_RETRY_MS = 200;
const LAST_RETRY_MS = 2_000;

type Ending = Omit<RunEnding, 'frames'>;

interface LastWrite {
  readonly ending: Ending;
  /** The last frames of the log. */
  readonly last: readonly Frame[];
}

type DonePart = Extract<ReplyPart, { event: 'done' }>;

const LOG_FULL = 'The turn was stopped: its log became larger than this host keeps in memory.';

interface RunRecorderDeps {
  readonly run: Run;
  readonly log: RunLog;
  readonly runs: RunStore;
  readonly events: EventBus;
  readonly logger: Logger;
  /** How long readers wait for an end that cannot be stored; not at all if the store is full or broken. */
  readonly storeWaitMs: number;
  /** Aborted when the host stops without waiting for its store any longer. */
  readonly shutdown: AbortSignal;
  /** Called when this process no longer owns the run. */
  readonly onLost: () => void;
  /** Called when readers see that the end could not be stored; storing it is still retried. */
  readonly onUnstored: (outcome: RunOutcome) => void;
  /** Called when the log exceeds its memory limit. */
  readonly onFull: (error: OracleError) => void;
}

/** Writes a run's frames to its log and the session's sockets immediately, and to the store soon after. */
export class RunRecorder {
  private unsaved: Frame[] = [];
  private timer: NodeJS.Timeout | undefined;
  private saving: Promise<void> = Promise.resolve();
  private saveRetryMs = FIRST_RETRY_MS;
  private isEnding = false;
  /** The end to store; replaced if readers saw another one. */
  private lastWrite: LastWrite | undefined;
  private isShown = false;

  constructor(private readonly deps: RunRecorderDeps) {}

  /** Returns the event that the sockets received, if any; writes nothing once the run is ending. */
  write(part: ReplyPart): ServerEvent | undefined {
    if (this.isEnding || !this.hasRoomFor(part)) return undefined;
    this.unsaved.push(this.deps.log.add(part.event, JSON.stringify(part.data)));
    this.timer ??= setTimeout(() => this.startSaving(), FLUSH_MS);
    return this.publish(part);
  }

  /** The `error` frame is written even if the log is full. */
  private hasRoomFor({ event }: ReplyPart): boolean {
    const { log, onFull } = this.deps;
    if (log.bytes < MAX_LOG_BYTES || event === 'error') return true;
    onFull(new OracleError('turn_too_long', { message: LOG_FULL }));
    return false;
  }

  /**
   * Stores the outcome with the last frames before readers see `done`. If storing takes too long, readers see the run
   * fail, and the failure is stored when the store is available again.
   */
  async end(ending: Ending, done: DonePart): Promise<Run> {
    this.isEnding = true;
    const { log, storeWaitMs } = this.deps;
    this.lastWrite = { ending, last: [toFrame(done, log.lastSeq + 1)] };
    const timer = setTimeout(() => this.showUnstored(), storeWaitMs);
    try {
      await this.settleSaving();
      const ended = await this.storeEnd();
      if (this.isShown) this.publishChange(ended);
      else log.add(done.event, JSON.stringify(done.data));
      return ended;
    } catch (error) {
      if (!this.isShown) this.showLost(ending.message?.content ?? '');
      throw error;
    } finally {
      clearTimeout(timer);
      log.close();
    }
  }

  /** Retries until the end is stored or the host stops; meanwhile readers find the run in memory. */
  private async storeEnd(): Promise<Run> {
    for (let wait = FIRST_RETRY_MS; ; wait = Math.min(2 * wait, LAST_RETRY_MS)) {
      try {
        return await this.finish();
      } catch (error) {
        if (error instanceof RunEndedElsewhereError) throw error;
        await this.waitAfter(error, wait);
      }
    }
  }

  private async waitAfter(error: unknown, wait: number): Promise<void> {
    const { shutdown } = this.deps;
    if (shutdown.aborted) throw error;
    this.logFailure(error, 'outcome not stored yet', wait);
    if (!isTransient(error)) this.showUnstored();
    await sleep(wait, undefined, { signal: shutdown }).catch(() => undefined);
  }

  private async finish(): Promise<Run> {
    const { run, runs } = this.deps;
    const { ending, last } = this.lastWrite as LastWrite;
    const frames = [...this.unsaved, ...last];
    const key = { owner: run.owner, runId: run.id };
    const ended = await runs.finish({ ...key, ending: { ...ending, frames } });
    return ended?.run ?? this.findStored(ending);
  }

  /** An attempt may have succeeded although its reply was lost. */
  private async findStored({ status }: Ending): Promise<Run> {
    const { run, runs } = this.deps;
    const stored = await runs.find({ owner: run.owner, runId: run.id });
    if (!stored || stored.status !== status) throw new RunEndedElsewhereError();
    return stored;
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
    const text = ending.message?.content ?? '';
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
      buildDoneFrame({ runId: run.id, messageId: undefined, status: 'failed', text }),
    ];
    const last = parts.map((part) => log.add(part.event, JSON.stringify(part.data)));
    const message = ending.message && { ...ending.message, isComplete: false };
    const { warnings = [] } = ending.report ?? {};
    const error = createNotStoredError();
    const report = createReport(warnings, error);
    this.lastWrite = {
      ending: { ...ending, message, status: 'failed', fault: failure, report },
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
    events.publish(run, { event, payload, position: endOfTurn(run.turn) });
  }

  /** The stored run differs from what readers saw: makes them reload it. */
  private showLost(text: string): void {
    const { run, log } = this.deps;
    const changed = buildCacheInvalidation(run);
    log.add(changed.event, JSON.stringify(changed.data));
    this.publish(changed);
    const done = buildDoneFrame({
      runId: run.id,
      messageId: undefined,
      status: 'interrupted',
      text,
    });
    log.add(done.event, JSON.stringify(done.data));
  }

  /** Sends the frame just added to the session's sockets. */
  private publish(part: ReplyPart): ServerEvent | undefined {
    const { run, log, events } = this.deps;
    const event = toServerEvent(part, { turn: run.turn, seq: log.lastSeq });
    if (event) events.publish(run, event);
    return event;
  }

  private async settleSaving(): Promise<void> {
    clearTimeout(this.timer);
    await this.saving;
    // A failed save has scheduled another one.
    clearTimeout(this.timer);
  }

  /** One at a time, so that frames are stored in order. */
  private startSaving(): void {
    this.timer = undefined;
    this.saving = this.saving.then(() => this.save());
  }

  private async save(): Promise<void> {
    const { run, runs, onLost } = this.deps;
    const frames = this.unsaved;
    this.unsaved = [];
    try {
      const isOurs = await runs.appendFrames({ owner: run.owner, runId: run.id, frames });
      this.saveRetryMs = FIRST_RETRY_MS;
      if (!isOurs) onLost();
    } catch (err) {
      this.logFailure(err, 'frames not stored; trying again', this.saveRetryMs);
      this.unsaved = [...frames, ...this.unsaved];
      this.timer ??= setTimeout(() => this.startSaving(), this.saveRetryMs);
      this.saveRetryMs = Math.min(2 * this.saveRetryMs, LAST_RETRY_MS);
    }
  }

  /** One warning per run, without a stack: the store logs when an outage begins and ends. */
  private logFailure(error: unknown, text: string, wait: number): void {
    const reason = error instanceof Error ? error.message : String(error);
    const level = wait === FIRST_RETRY_MS ? 'warn' : 'debug';
    this.deps.logger[level]({ reason, runId: this.deps.run.id }, text);
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
}

/** Builds the last frame of a run (contract B4). */
export function buildDoneFrame({ runId, messageId, status, text }: DoneFields) {
  const data: DoneFrame = {
    runId,
    ...(messageId !== undefined && { messageId }),
    status,
    ...(status !== 'finished' && { [status]: true, partialText: text }),
  };
  return { event: 'done', data } as const satisfies ReplyPart;
}

/** Builds the frame that makes clients reload a run that is stored differently than it was shown (contract B5). */
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
