import { setTimeout as sleep } from 'node:timers/promises';
import { type DoneFrame, OracleError, type ReplyPart } from '@sibyl/protocol';
import { abortable } from '@sibyl/server-kit';
import {
  BEFORE_ALL,
  endOfTurn,
  type Position,
  type ServerEvent,
  type SessionKey,
  toServerEvent,
} from '../bus/event-bus.js';
import type { Frame } from '../store/runs/frames.js';
import { hasEnded, type Run } from '../store/runs/run.js';
import type { RunStore } from '../store/runs/run-store.js';
import type { Store } from '../store/store.js';
import { type RunOutcome, readError } from './run-log.js';
import { buildDoneFrame } from './run-recorder.js';
import type { Turns } from './turns.js';

/** How often the runs of other processes are polled. */
const POLL_MS = 200;

export interface RunKey {
  readonly owner: string;
  readonly runId: string;
}

/** Reads runs of this and other processes, running or ended. */
export class RunReader {
  constructor(
    private readonly turns: Turns,
    private readonly store: Store,
  ) {}

  async find(key: RunKey): Promise<Run> {
    const run = this.turns.findLive(key)?.run ?? (await this.store.runs.find(key));
    if (!run) throw new OracleError('run_not_found');
    return run;
  }

  /** Yields the frames after `after`, stored ones first, then live ones; the last is always `done`. */
  read(run: Run, after: number, signal: AbortSignal): AsyncGenerator<readonly Frame[]> {
    const live = this.turns.findLive({ owner: run.owner, runId: run.id });
    return live ? live.log.read(after, signal) : this.readStored(run, after, signal);
  }

  /** Waits for the end of a run; returns undefined as soon as `gone` is aborted. */
  async outcome(run: Run, gone: AbortSignal): Promise<RunOutcome | undefined> {
    const key = { owner: run.owner, runId: run.id };
    const live = this.turns.findLive(key);
    if (live) return abortable(() => live.outcome, gone).catch(() => undefined);
    while (!gone.aborted) {
      const now = await this.find(key);
      if (hasEnded(now)) {
        const { status, messageId, report } = now;
        const { warnings = [] } = report;
        return {
          status,
          messageId,
          text: await this.readText(now),
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
      // The run is read before its frames: if it has ended, all of them are stored.
      const run = await this.find({ owner, runId });
      const frames = await this.store.runs.frames({ owner, runId, after: seen });
      if (frames.length > 0) yield frames;
      if (frames.at(-1)?.event === 'done') return;
      seen = frames.at(-1)?.seq ?? seen;
      if (hasEnded(run)) {
        yield await this.buildEnding(run, run.status, seen);
        return;
      }
      await sleep(POLL_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  /**
   * Builds the last frames for a client that has seen `seen` when the log contains nothing after it: the client has
   * everything, it saw more than survived a crash (contract B4), or the log was pruned.
   */
  private async buildEnding(
    run: Run,
    status: DoneFrame['status'],
    seen: number,
  ): Promise<readonly Frame[]> {
    const text = await this.readText(run);
    const done = buildDoneFrame({ runId: run.id, messageId: run.messageId, status, text });
    if (seen === run.lastSeq && seen > 0) return toFrames([done], seen);
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
    return toFrames([start, ...whole, done], seen + 1);
  }

  private async readText({ owner, messageId }: Run): Promise<string> {
    if (messageId === undefined) return '';
    return (await this.store.messages.find({ owner, messageId }))?.content ?? '';
  }
}

const toFrames = (parts: readonly ReplyPart[], from: number): Frame[] =>
  parts.map(({ event, data }, i) => ({ seq: from + i, event, data: JSON.stringify(data) }));

/** Finds the socket events that a client missed, in the logs of the session's runs. */
export class MissedEvents {
  constructor(
    private readonly turns: Turns,
    private readonly runs: RunStore,
  ) {}

  /** Returns the position of the session's latest event. */
  async latest(key: SessionKey): Promise<Position> {
    const run = await this.runs.current(key);
    if (!run) return BEFORE_ALL;
    const live = this.turns.findLive({ owner: run.owner, runId: run.id });
    if (live) return { turn: run.turn, seq: live.log.lastSeq };
    return hasEnded(run) ? endOfTurn(run.turn) : { turn: run.turn, seq: run.lastSeq };
  }

  /** Yields the events after a position, oldest first. */
  async *after(key: SessionKey, seen: Position): AsyncGenerator<ServerEvent> {
    let runs = await this.runs.list({ ...key, fromTurn: seen.turn });
    while (runs.length > 0) {
      for (const run of runs) yield* this.readEvents(run, run.turn === seen.turn ? seen.seq : 0);
      runs = await this.runs.list({ ...key, fromTurn: (runs.at(-1)?.turn ?? 0) + 1 });
    }
  }

  private async *readEvents(run: Run, after: number): AsyncGenerator<ServerEvent> {
    for (const frame of await this.readFrames(run, after)) {
      const event = toServerEvent(toReplyPart(frame), { turn: run.turn, seq: frame.seq });
      if (event && !isRepair(run, frame)) yield event;
    }
    if (after < endOfTurn(run.turn).seq) yield* this.readRepair(run);
  }

  /** A crash may have lost frames that the client saw, and their numbers were used again. */
  private async *readRepair(run: Run): AsyncGenerator<ServerEvent> {
    if (run.status !== 'interrupted') return;
    const [frame] = await this.readFrames(run, run.lastSeq - 2);
    if (!frame || !isRepair(run, frame)) return;
    const event = toServerEvent(toReplyPart(frame), endOfTurn(run.turn));
    if (event) yield event;
  }

  private async readFrames({ owner, id: runId }: Run, after: number): Promise<readonly Frame[]> {
    const live = this.turns.findLive({ owner, runId });
    return live ? live.log.since(after) : this.runs.frames({ owner, runId, after });
  }
}

const toReplyPart = ({ event, data }: Frame) => ({ event, data: JSON.parse(data) }) as ReplyPart;

/** Whether a frame is the first of those that ended the run of a dead process. */
const isRepair = ({ status, lastSeq }: Run, { seq, event }: Frame) =>
  status === 'interrupted' && seq === lastSeq - 1 && event === 'message_cache_invalidation';
