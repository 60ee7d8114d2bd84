import { setTimeout as sleep } from 'node:timers/promises';
import { type DoneFrame, OracleError, type ReplyPart } from '@sibyl/protocol';
import { untilAborted } from '../../agent/calls/until-aborted.js';
import type { Frame } from '../../store/runs/frames.js';
import { hasEnded, type Run } from '../../store/runs/run.js';
import type { Store } from '../../store/store.js';
import type { Turns } from '../turns.js';
import { doneOf } from './done-frame.js';
import { type RunOutcome, readError } from './run-outcome.js';

/** How often a run of another process is looked at. */
const POLL_MS = 200;

export interface RunKey {
  readonly owner: string;
  readonly runId: string;
}

/** Reads runs, wherever they are carried out and whether or not they have ended. */
export class RunReader {
  constructor(
    private readonly turns: Turns,
    private readonly store: Store,
  ) {}

  async find(key: RunKey): Promise<Run> {
    const run = this.turns.live(key)?.run ?? (await this.store.runs.find(key));
    if (!run) throw new OracleError('run_not_found');
    return run;
  }

  /** Yields the frames above `after`, replayed then live; the last is always `done`. */
  read(run: Run, after: number, signal: AbortSignal): AsyncGenerator<readonly Frame[]> {
    const live = this.turns.live({ owner: run.owner, runId: run.id });
    return live ? live.log.read(after, signal) : this.#readStored(run, after, signal);
  }

  /** Waits for the end of a run; undefined as soon as `gone` fires. */
  async outcome(run: Run, gone: AbortSignal): Promise<RunOutcome | undefined> {
    const key = { owner: run.owner, runId: run.id };
    const live = this.turns.live(key);
    if (live) return untilAborted(() => live.outcome, gone).catch(() => undefined);
    while (!gone.aborted) {
      const now = await this.find(key);
      if (hasEnded(now)) {
        const { status, messageId, report } = now;
        const { warnings = [] } = report;
        return {
          status,
          messageId,
          text: await this.#textOf(now),
          warnings,
          error: readError(now),
        };
      }
      await sleep(POLL_MS, undefined, { signal: gone }).catch(() => undefined);
    }
    return undefined;
  }

  async *#readStored(
    { owner, id: runId }: Run,
    after: number,
    signal: AbortSignal,
  ): AsyncGenerator<readonly Frame[]> {
    let seen = after;
    while (!signal.aborted) {
      // The run before its frames: one that has ended by now has all of them stored.
      const run = await this.find({ owner, runId });
      const frames = await this.store.runs.frames({ owner, runId, after: seen });
      if (frames.length > 0) yield frames;
      if (frames.at(-1)?.event === 'done') return;
      seen = frames.at(-1)?.seq ?? seen;
      if (hasEnded(run)) {
        yield await this.#ending(run, run.status, seen);
        return;
      }
      await sleep(POLL_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  /**
   * What to tell a client that has seen up to `seen` when the log holds nothing beyond: it has all,
   * it saw more than a crash left (contract B4), or the log was dropped with age.
   */
  async #ending(run: Run, status: DoneFrame['status'], seen: number): Promise<readonly Frame[]> {
    const text = await this.#textOf(run);
    const done = doneOf({ runId: run.id, messageId: run.messageId, status, text });
    if (seen === run.lastSeq && seen > 0) return numbered([done], seen);
    const { id: runId, sessionId, requestId } = run;
    const isPruned = seen < run.lastSeq;
    const partialLength = isPruned ? 0 : text.length;
    const start: ReplyPart = {
      event: 'run',
      data: { runId, sessionId, requestId, resumed: true, partialLength },
    };
    const timestamp = new Date(run.updatedAt).toISOString();
    const whole: ReplyPart[] =
      isPruned && text ? [{ event: 'message', data: { content: text, timestamp } }] : [];
    return numbered([start, ...whole, done], seen + 1);
  }

  async #textOf({ owner, messageId }: Run): Promise<string> {
    if (messageId === undefined) return '';
    return (await this.store.messages.find({ owner, messageId }))?.content ?? '';
  }
}

const numbered = (parts: readonly ReplyPart[], from: number): Frame[] =>
  parts.map(({ event, data }, i) => ({ seq: from + i, event, data: JSON.stringify(data) }));
