import { setTimeout as sleep } from 'node:timers/promises';
import { type DoneFrame, OracleError, type ReplyPart } from '@sibyl/protocol';
import type { Logger } from 'pino';
import { type EventBus, endOf, type ServerEvent, toServerEvent } from '../bus/event-bus.js';
import type { RunEnding } from '../store/runs/finish-run.js';
import type { Frame } from '../store/runs/frames.js';
import type { Run } from '../store/runs/run.js';
import type { RunStore } from '../store/runs/run-store.js';
import { classifyStoreError } from '../store/store-errors.js';
import { createReport, type RunLog, type RunOutcome } from './run-log.js';

/** Well under the 250 ms that text may run ahead of the store (contract B4). */
const FLUSH_MS = 150;

/** Memory that the frames of one run may take; longer answers are cut off much earlier, by their characters. */
const MAX_LOG_BYTES = 64 * 1024 * 1024;

/** Waits between attempts to store a run, while the store is unavailable: doubling up to the last. */
const FIRST_RETRY_MS = 200;
const LAST_RETRY_MS = 2_000;

type Ending = Omit<RunEnding, 'frames'>;

interface LastWrite {
  readonly ending: Ending;
  /** The frames that end the log. */
  readonly last: readonly Frame[];
}

type DonePart = Extract<ReplyPart, { event: 'done' }>;

const LOG_FULL = 'The turn was stopped: its log became larger than this host keeps in memory.';

interface RunRecorderParts {
  readonly run: Run;
  readonly log: RunLog;
  readonly runs: RunStore;
  readonly events: EventBus;
  readonly logger: Logger;
  /** How long readers wait for an end that cannot be stored; a full or broken store ends their wait at once. */
  readonly storeWaitMs: number;
  /** Fires when the host cannot wait for its store any longer. */
  readonly giveUp: AbortSignal;
  /** Called when the run is no longer this process's to carry out. */
  readonly onLost: () => void;
  /** Called when readers learn that the end could not be stored; storing it is still being retried. */
  readonly onUnstored: (outcome: RunOutcome) => void;
  /** Called when the log has become too long to be kept. */
  readonly onFull: (error: OracleError) => void;
}

/** Writes a run's frames to its log and its session's sockets at once, and to the store soon after. */
export class RunRecorder {
  private readonly parts: RunRecorderParts;
  private unsaved: Frame[] = [];
  private timer: NodeJS.Timeout | undefined;
  private saving: Promise<void> = Promise.resolve();
  private saveRetryMs = FIRST_RETRY_MS;
  private isEnding = false;
  /** What the end of the run will be in the store; replaced when readers saw another end. */
  #end: LastWrite | undefined;
  private isShown = false;

  constructor(parts: RunRecorderParts) {
    this.parts = parts;
  }

  /** Returns what the sockets were told, if anything; once the run is ending nothing is written. */
  write(part: ReplyPart): ServerEvent | undefined {
    if (this.isEnding || !this.hasRoomFor(part)) return undefined;
    this.unsaved.push(this.parts.log.add(part.event, JSON.stringify(part.data)));
    this.timer ??= setTimeout(() => this.startSaving(), FLUSH_MS);
    return this.tell(part);
  }

  /** Why the run fails is written however full the log is. */
  private hasRoomFor({ event }: ReplyPart): boolean {
    const { log, onFull } = this.parts;
    if (log.bytes < MAX_LOG_BYTES || event === 'error') return true;
    onFull(new OracleError('turn_too_long', { message: LOG_FULL }));
    return false;
  }

  /**
   * Stores the outcome with the last frames, and only then shows `done` to readers. Where that cannot be stored in
   * time, they see the run fail instead, and the failure is stored once the store works again.
   */
  async end(ending: Ending, done: DonePart): Promise<Run> {
    this.isEnding = true;
    const { log, storeWaitMs } = this.parts;
    this.#end = { ending, last: [toFrame(done, log.lastSeq + 1)] };
    const timer = setTimeout(() => this.showUnstored(), storeWaitMs);
    try {
      await this.settleSaving();
      const ended = await this.storeEnd();
      if (this.isShown) this.announce(ended);
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

  /** Until it works or the host gives up: the run is kept in memory meanwhile, where readers find it. */
  private async storeEnd(): Promise<Run> {
    for (let wait = FIRST_RETRY_MS; ; wait = Math.min(2 * wait, LAST_RETRY_MS)) {
      try {
        return await this.finish();
      } catch (error) {
        if (error instanceof EndedElsewhere) throw error;
        await this.waitAfter(error, wait);
      }
    }
  }

  private async waitAfter(error: unknown, wait: number): Promise<void> {
    const { giveUp } = this.parts;
    if (giveUp.aborted) throw error;
    this.report(error, 'outcome not stored yet', wait);
    if (!mayPassSoon(error)) this.showUnstored();
    await sleep(wait, undefined, { signal: giveUp }).catch(() => undefined);
  }

  private async finish(): Promise<Run> {
    const { run, runs } = this.parts;
    const { ending, last } = this.#end as LastWrite;
    const frames = [...this.unsaved, ...last];
    const key = { owner: run.owner, runId: run.id };
    const ended = await runs.finish({ ...key, ending: { ...ending, frames } });
    return ended?.run ?? this.findStored(ending);
  }

  /** An attempt may have been stored although its reply was lost. */
  private async findStored({ status, message }: Ending): Promise<Run> {
    const { run, runs } = this.parts;
    const stored = await runs.find({ owner: run.owner, runId: run.id });
    const isOurs = message ? stored?.messageId === message.id : stored?.status === status;
    if (!stored || !isOurs) throw new EndedElsewhere();
    return stored;
  }

  /** Ends the run as failed for its readers, and from now on for the store as well. */
  private showUnstored(): void {
    if (this.isShown || !this.#end) return;
    this.isShown = true;
    const { run, log, onUnstored } = this.parts;
    const { ending } = this.#end;
    const fault = { kind: 'server', message: UNSTORED } as const;
    const { sessionId, requestId } = run;
    const timestamp = new Date().toISOString();
    const text = ending.message?.content ?? '';
    const parts: readonly ReplyPart[] = [
      {
        event: 'error',
        data: {
          error: UNSTORED,
          kind: fault.kind,
          retryable: true,
          sessionId,
          requestId,
          timestamp,
        },
      },
      doneOf({ runId: run.id, messageId: undefined, status: 'failed', text }),
    ];
    const last = parts.map((part) => log.add(part.event, JSON.stringify(part.data)));
    const message = ending.message && { ...ending.message, isComplete: false };
    const { warnings = [] } = ending.report ?? {};
    const error = unstored();
    const report = createReport(warnings, error);
    this.#end = { ending: { ...ending, message, status: 'failed', fault, report }, last };
    log.close();
    // Without the text: a caller of JSON is to send the message again.
    onUnstored({ status: 'failed', messageId: undefined, text: '', warnings, error });
  }

  /** Readers have left with a failure: pages that show the session read it again. */
  private announce(stored: Run): void {
    const { run, events } = this.parts;
    const { event, data: payload } = cacheInvalidation(run, stored.messageId);
    events.publish(run, { event, payload, position: endOf(run.turn) });
  }

  /** What was shown is not what is stored: who has it must read again. */
  private showLost(text: string): void {
    const { run, log } = this.parts;
    const changed = cacheInvalidation(run);
    log.add(changed.event, JSON.stringify(changed.data));
    this.tell(changed);
    const done = doneOf({ runId: run.id, messageId: undefined, status: 'interrupted', text });
    log.add(done.event, JSON.stringify(done.data));
  }

  /** Tells the session's sockets of the frame just added. */
  private tell(part: ReplyPart): ServerEvent | undefined {
    const { run, log, events } = this.parts;
    const told = toServerEvent(part, { turn: run.turn, seq: log.lastSeq });
    if (told) events.publish(run, told);
    return told;
  }

  private async settleSaving(): Promise<void> {
    clearTimeout(this.timer);
    await this.saving;
    // A save that failed has asked for another.
    clearTimeout(this.timer);
  }

  /** One after the other, so that what is stored of the log never goes back. */
  private startSaving(): void {
    this.timer = undefined;
    this.saving = this.saving.then(() => this.save());
  }

  private async save(): Promise<void> {
    const { run, runs, onLost } = this.parts;
    const frames = this.unsaved;
    this.unsaved = [];
    try {
      const isOurs = await runs.appendFrames({ owner: run.owner, runId: run.id, frames });
      this.saveRetryMs = FIRST_RETRY_MS;
      if (!isOurs) onLost();
    } catch (err) {
      this.report(err, 'frames not stored; trying again', this.saveRetryMs);
      this.unsaved = [...frames, ...this.unsaved];
      this.timer ??= setTimeout(() => this.startSaving(), this.saveRetryMs);
      this.saveRetryMs = Math.min(2 * this.saveRetryMs, LAST_RETRY_MS);
    }
  }

  /** One warning, without a stack, per run: the store itself reports when an outage begins and ends. */
  private report(error: unknown, text: string, wait: number): void {
    const reason = error instanceof Error ? error.message : String(error);
    const level = wait === FIRST_RETRY_MS ? 'warn' : 'debug';
    this.parts.logger[level]({ reason, runId: this.parts.run.id }, text);
  }
}

/** Nothing is left to end: the session was deleted, or another host took this one for dead. */
class EndedElsewhere extends Error {
  constructor() {
    super('the run was ended elsewhere');
  }
}

const UNSTORED = 'The answer could not be stored. Try again.';

/** How a JSON caller learns that the end of its turn could not be stored. */
export const unstored = (): OracleError =>
  new OracleError('store_unavailable', { message: UNSTORED, retryAfterSeconds: 5 });

const toFrame = ({ event, data }: ReplyPart, seq: number): Frame => ({
  seq,
  event,
  data: JSON.stringify(data),
});

/** A disk that is full or a file that is broken stays so until a person acts. */
const mayPassSoon = (error: unknown) =>
  !['full', 'lasting'].includes(classifyStoreError(error) ?? 'passing');

interface DoneFields {
  readonly runId: string;
  readonly messageId: string | undefined;
  readonly status: DoneFrame['status'];
  /** The answer as far as it came. */
  readonly text: string;
}

/** The last frame of a run (contract B4). */
export function doneOf({ runId, messageId, status, text }: DoneFields) {
  const data: DoneFrame = {
    runId,
    ...(messageId !== undefined && { messageId }),
    status,
    ...(status !== 'finished' && { [status]: true, partialText: text }),
  };
  return { event: 'done', data } as const satisfies ReplyPart;
}

/** Tells that what is stored of a run is not what was shown of it (contract B5). */
export function cacheInvalidation(
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
