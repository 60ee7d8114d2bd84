import { setTimeout as sleep } from 'node:timers/promises';
import type { ReplyPart } from '@sibyl/protocol';
import type { Logger } from 'pino';
import type { EventBus } from '../../events/event-bus.js';
import { type ServerEvent, toServerEvent } from '../../events/server-event.js';
import type { EndedRun, RunEnding } from '../../store/runs/finish-run.js';
import type { Frame } from '../../store/runs/frames.js';
import type { Run } from '../../store/runs/run.js';
import type { RunStore } from '../../store/runs/run-store.js';
import { cacheInvalidation } from './cache-invalidation.js';
import { doneOf } from './done-frame.js';
import type { RunLog } from './run-log.js';

/** Well under the 250 ms that text may run ahead of the store (contract B4). */
const FLUSH_MS = 150;

/** Waits between attempts to store how a run ended, while the store is away: doubling up to the last. */
const FIRST_RETRY_MS = 200;
const LAST_RETRY_MS = 10_000;

interface RunRecorderParts {
  readonly run: Run;
  readonly log: RunLog;
  readonly runs: RunStore;
  readonly events: EventBus;
  readonly logger: Logger;
  /** Fires when the host cannot wait for its store any longer. */
  readonly giveUp: AbortSignal;
  /** Called when the run is no longer this process's to carry out. */
  readonly onLost: () => void;
}

/** Writes a run's frames to its log and its session's sockets at once, and to the store soon after. */
export class RunRecorder {
  readonly #parts: RunRecorderParts;
  #unsaved: Frame[] = [];
  #timer: NodeJS.Timeout | undefined;
  #saving: Promise<void> = Promise.resolve();
  #isEnding = false;

  constructor(parts: RunRecorderParts) {
    this.#parts = parts;
  }

  /** Returns what the sockets were told, if anything; once the run is ending nothing is written. */
  write(part: ReplyPart): ServerEvent | undefined {
    if (this.#isEnding) return undefined;
    this.#unsaved.push(this.#parts.log.add(part.event, JSON.stringify(part.data)));
    this.#timer ??= setTimeout(() => this.#startSaving(), FLUSH_MS);
    return this.#tell(part);
  }

  /** Stores the outcome with the last frames, and only then shows `done` to readers. */
  async end(
    ending: Omit<RunEnding, 'frames'>,
    done: Extract<ReplyPart, { event: 'done' }>,
  ): Promise<EndedRun> {
    this.#isEnding = true;
    await this.#settleSaving();
    const { run, log, runs } = this.#parts;
    const data = JSON.stringify(done.data);
    const frames = [...this.#unsaved, { seq: log.lastSeq + 1, event: done.event, data }];
    const key = { owner: run.owner, runId: run.id };
    try {
      const ended = await this.#persistently(() =>
        runs.finish({ ...key, ending: { ...ending, frames } }),
      );
      // Nothing left to end: somebody deleted the session, or took this process for dead.
      if (!ended) throw new Error('the run was ended by somebody else');
      log.add(done.event, data);
      return ended;
    } catch (error) {
      this.#showLost(ending.message?.content ?? '');
      throw error;
    } finally {
      log.close();
    }
  }

  /** What was shown is not what is stored: who has it must read again. */
  #showLost(text: string): void {
    const { run, log } = this.#parts;
    const changed = cacheInvalidation(run);
    log.add(changed.event, JSON.stringify(changed.data));
    this.#tell(changed);
    const done = doneOf({ runId: run.id, messageId: undefined, status: 'interrupted', text });
    log.add(done.event, JSON.stringify(done.data));
  }

  /** Tells the session's sockets of the frame just added. */
  #tell(part: ReplyPart): ServerEvent | undefined {
    const { run, log, events } = this.#parts;
    const told = toServerEvent(part, { turn: run.turn, seq: log.lastSeq });
    if (told) events.publish(run, told);
    return told;
  }

  async #settleSaving(): Promise<void> {
    clearTimeout(this.#timer);
    await this.#saving;
    // A save that failed has asked for another.
    clearTimeout(this.#timer);
  }

  /** One after the other, so that what is stored of the log never goes back. */
  #startSaving(): void {
    this.#timer = undefined;
    this.#saving = this.#saving.then(() => this.#save());
  }

  async #save(): Promise<void> {
    const { run, runs, logger, onLost } = this.#parts;
    const frames = this.#unsaved;
    this.#unsaved = [];
    try {
      const isOurs = await runs.appendFrames({ owner: run.owner, runId: run.id, frames });
      if (!isOurs) onLost();
    } catch (err) {
      logger.warn({ err, runId: run.id }, 'frames not stored; trying again');
      this.#unsaved = [...frames, ...this.#unsaved];
      this.#timer ??= setTimeout(() => this.#startSaving(), FLUSH_MS);
    }
  }

  /** Until it works or the host gives up: the run is kept in memory meanwhile, where readers find it. */
  async #persistently<T>(attempt: () => Promise<T>): Promise<T> {
    const { giveUp, logger, run } = this.#parts;
    for (let wait = FIRST_RETRY_MS; ; wait = Math.min(2 * wait, LAST_RETRY_MS)) {
      try {
        return await attempt();
      } catch (err) {
        if (giveUp.aborted) throw err;
        logger.warn({ err, runId: run.id }, 'outcome not stored yet');
        await sleep(wait, undefined, { signal: giveUp }).catch(() => undefined);
      }
    }
  }
}
