import { setTimeout as sleep } from 'node:timers/promises';
import { type DoneFrame, OracleError, type ReplyPart } from '@sibyl/protocol';
import { untilAborted } from '../agent/timeouts.js';
import {
  type Audience,
  BEFORE_ALL,
  endOf,
  type Position,
  type ServerEvent,
  toServerEvent,
} from '../bus/event-bus.js';
import type { Frame } from '../store/runs/frames.js';
import { hasEnded, type Run } from '../store/runs/run.js';
import type { RunStore } from '../store/runs/run-store.js';
import type { Store } from '../store/store.js';
import { type RunOutcome, readError } from './run-log.js';
import { doneOf } from './run-recorder.js';
import type { Turns } from './turns.js';

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
    return live ? live.log.read(after, signal) : this.readStored(run, after, signal);
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
          text: await this.textOf(now),
          warnings,
          error: readError(now),
        };
      }
      await sleep(POLL_MS, undefined, { signal: gone }).catch(() => undefined);
    }
    return undefined;
  }

  private async *readStored(
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
        yield await this.ending(run, run.status, seen);
        return;
      }
      await sleep(POLL_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  /**
   * What to tell a client that has seen up to `seen` when the log holds nothing beyond: it has all,
   * it saw more than a crash left (contract B4), or the log was dropped with age.
   */
  private async ending(
    run: Run,
    status: DoneFrame['status'],
    seen: number,
  ): Promise<readonly Frame[]> {
    const text = await this.textOf(run);
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

  private async textOf({ owner, messageId }: Run): Promise<string> {
    if (messageId === undefined) return '';
    return (await this.store.messages.find({ owner, messageId }))?.content ?? '';
  }
}

const numbered = (parts: readonly ReplyPart[], from: number): Frame[] =>
  parts.map(({ event, data }, i) => ({ seq: from + i, event, data: JSON.stringify(data) }));

/** Finds in the logs of a session's runs what its sockets were told while a client was away. */
export class MissedEvents {
  constructor(
    private readonly turns: Turns,
    private readonly runs: RunStore,
  ) {}

  /** Where the session stands now. */
  async latest(audience: Audience): Promise<Position> {
    const run = await this.runs.current(audience);
    if (!run) return BEFORE_ALL;
    const live = this.turns.live({ owner: run.owner, runId: run.id });
    if (live) return { turn: run.turn, seq: live.log.lastSeq };
    return hasEnded(run) ? endOf(run.turn) : { turn: run.turn, seq: run.lastSeq };
  }

  /** Yields what was told after a position, oldest first, up to now. */
  async *after(audience: Audience, seen: Position): AsyncGenerator<ServerEvent> {
    let runs = await this.runs.list({ ...audience, fromTurn: seen.turn });
    while (runs.length > 0) {
      for (const run of runs) yield* this.toldIn(run, run.turn === seen.turn ? seen.seq : 0);
      runs = await this.runs.list({ ...audience, fromTurn: (runs.at(-1)?.turn ?? 0) + 1 });
    }
  }

  private async *toldIn(run: Run, after: number): AsyncGenerator<ServerEvent> {
    for (const frame of await this.framesOf(run, after)) {
      const told = toServerEvent(partOf(frame), { turn: run.turn, seq: frame.seq });
      if (told && !isRepair(run, frame)) yield told;
    }
    if (after < endOf(run.turn).seq) yield* this.repairOf(run);
  }

  /** A crash may have taken what the client saw last, and its numbers were given anew. */
  private async *repairOf(run: Run): AsyncGenerator<ServerEvent> {
    if (run.status !== 'interrupted') return;
    const [frame] = await this.framesOf(run, run.lastSeq - 2);
    if (!frame || !isRepair(run, frame)) return;
    const told = toServerEvent(partOf(frame), endOf(run.turn));
    if (told) yield told;
  }

  private async framesOf({ owner, id: runId }: Run, after: number): Promise<readonly Frame[]> {
    const live = this.turns.live({ owner, runId });
    return live ? live.log.since(after) : this.runs.frames({ owner, runId, after });
  }
}

const partOf = ({ event, data }: Frame) => ({ event, data: JSON.parse(data) }) as ReplyPart;

/** Whether a frame is what the end of a run that was left behind begins with. */
const isRepair = ({ status, lastSeq }: Run, { seq, event }: Frame) =>
  status === 'interrupted' && seq === lastSeq - 1 && event === 'message_cache_invalidation';
