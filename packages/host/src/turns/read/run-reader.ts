import { setTimeout as sleep } from 'node:timers/promises';
import { type DoneFrame, OracleError, type ReplyPart, serverEvents } from '@sibyl/protocol';
import { abortable } from '@sibyl/server-kit';
import {
  BEFORE_ALL,
  endOfRun,
  type Position,
  type ServerEvent,
  type SessionKey,
  seqIn,
  toPosition,
  toServerEvent,
} from '../../bus/event-bus.js';
import type { Frame } from '../../store/runs/frames.js';
import {
  type EndStatus,
  hasCrashed,
  hasEnded,
  hasStopped,
  type Run,
} from '../../store/runs/run.js';
import type { RunStore } from '../../store/runs/run-store.js';
import type { RunKey } from '../../store/schema/runs.js';
import type { Store } from '../../store/store.js';
import { createUnstoredOutcome, type RunOutcome, readError } from '../run/run-end.js';
import { buildDoneFrame, buildResumedFrame, toFrames } from '../run/run-log.js';
import type { Turns } from '../turns.js';
import type { FeedReader, RunFeeds } from './run-feeds.js';

/** How long a reader of another host's run waits for frames before it reads the store. */
const SILENCE_MS = 1_000;
/** The same, if frames are known to be on their way to the store. */
const POLL_MS = 200;

/** How long a reader that lost access waits for the end of a run of another host, which may learn of it later. */
const LOST_END_MS = 5_000;
/** The same, once that host has said that the run ends: storing the end may take longer. */
const ENDING_MS = 60_000;

/** The published client fails if the end of a stream arrives just after the response to its abort. */
const ABORT_DELAY_MS = 300;

/** Reads runs of this and other hosts, running or ended. */
export class RunReader {
  constructor(
    private readonly turns: Turns,
    private readonly store: Store,
    private readonly feeds: RunFeeds,
  ) {}

  async find(key: RunKey): Promise<Run> {
    const run = this.turns.findActive(key)?.run ?? (await this.store.runs.find(key));
    if (!run) throw new OracleError('run_not_found');
    return run;
  }

  /** Yields the frames after `after`, stored ones first, then live ones; the last is always `done`. */
  read(run: Run, after: number, signal: AbortSignal): AsyncGenerator<readonly Frame[]> {
    const active = this.turns.findActive(run);
    const frames = active ? active.read(after, signal) : this.readStored(run, after, signal);
    return hasStopped(run) ? frames : delayAborted(frames, signal);
  }

  /**
   * Waits for the end or pause of a run, also if another host continues its turn after a crash; returns undefined as
   * soon as `gone` is aborted.
   */
  async outcome(run: Run, gone: AbortSignal): Promise<RunOutcome | undefined> {
    const active = this.turns.findActive(run);
    if (active)
      return abortable(() => active.outcome, gone).catch(() =>
        active.staysFor(gone) ? active.outcome : undefined,
      );
    let isOver = hasStopped(run);
    if (!isOver)
      for await (const frames of this.readStored(run, run.lastSeq, gone))
        isOver ||= frames.at(-1)?.event === 'done';
    if (!isOver) return undefined;
    const ended = await this.find(run);
    const latest = hasCrashed(ended) ? await this.store.runs.latestAttempt(ended) : undefined;
    if (latest && latest.runId !== ended.runId) return this.outcome(latest, gone);
    // Its host shows the end although it could not be stored.
    return hasStopped(ended) ? this.buildOutcome(ended) : createUnstoredOutcome();
  }

  private async buildOutcome(run: Run): Promise<RunOutcome> {
    const { messageId, report } = run;
    const { warnings = [], pending, cost } = report;
    const text = await this.readText(run);
    const usage = { ...run.usage, cost };
    const error = readError(run);
    return { status: toEnding(run), messageId, text, warnings, usage, error, pending };
  }

  /** Reads the store, then follows the host of the run; reads the store again after a gap or silence. */
  private async *readStored(
    run: Run,
    after: number,
    signal: AbortSignal,
  ): AsyncGenerator<readonly Frame[]> {
    const feed = this.feeds.open(run);
    try {
      let followed: Followed = { seen: after, isDone: false, reason: 'silent' };
      while (!followed.isDone && !signal.aborted) {
        const read = yield* this.readStore(run, followed.seen, feed);
        if (read.isDone) return;
        const waitMs = followed.reason === 'changed' ? POLL_MS : SILENCE_MS;
        followed = yield* follow(feed, { seen: read.seen, waitMs, signal });
      }
      if (!followed.isDone && signal.reason instanceof OracleError)
        yield* this.readLostEnd(run, followed.seen, { feed, error: signal.reason });
    } finally {
      feed.close();
    }
  }

  /** Yields the end of a run to a reader that lost access, if the run was aborted for the same reason. */
  private async *readLostEnd(
    run: Run,
    seen: number,
    { feed, error }: { readonly feed: FeedReader; readonly error: OracleError },
  ): AsyncGenerator<readonly Frame[]> {
    const startedAt = performance.now();
    while (performance.now() - startedAt < (feed.isEnding ? ENDING_MS : LOST_END_MS)) {
      const { status, report } = await this.find(run);
      const isSameEnd = status === 'aborted' && report.error?.code === error.code;
      if (isSameEnd) yield* this.readStore(run, seen, feed);
      if (isSameEnd || hasStopped({ status })) return;
      await sleep(POLL_MS);
    }
  }

  /** Yields what is stored after `seen`, with the last frame if the run has stopped. */
  private async *readStore(
    { owner, runId }: Run,
    seen: number,
    feed: FeedReader,
  ): AsyncGenerator<readonly Frame[], { readonly seen: number; readonly isDone: boolean }> {
    // The run is read before its frames: if it has stopped, all of them are stored.
    const current = await this.find({ owner, runId });
    if (!hasStopped(current)) feed.watch(current.hostId);
    let last = seen;
    for await (const frames of this.store.runs.framePages({ owner, runId, after: seen })) {
      yield frames;
      last = frames.at(-1)?.seq ?? last;
      if (frames.at(-1)?.event === 'done') return { seen: last, isDone: true };
    }
    if (!hasStopped(current)) return { seen: last, isDone: false };
    yield await this.buildEnding(current, last);
    return { seen: last, isDone: true };
  }

  /**
   * Builds the last frames for a client that has seen `seen` when the log contains nothing after it: the client has
   * everything, or the log was pruned.
   */
  private async buildEnding(run: Run, seen: number): Promise<readonly Frame[]> {
    const text = await this.readText(run);
    const { runId, messageId, report } = run;
    const { pending, cost } = report;
    const usage = { ...run.usage, cost };
    const done = buildDoneFrame({ runId, messageId, status: toEnding(run), text, pending, usage });
    if (seen === run.lastSeq && seen > 0) return toFrames([done], seen);
    const isPruned = seen < run.lastSeq;
    const timestamp = new Date(run.updatedAt).toISOString();
    const whole: ReplyPart[] =
      isPruned && text ? [{ event: 'message', data: { content: text, timestamp } }] : [];
    return toFrames([buildResumedFrame(run, isPruned ? '' : text), ...whole, done], seen + 1);
  }

  private async readText({ owner, messageId }: Run): Promise<string> {
    return (await this.store.messages.find({ owner, messageId }))?.content ?? '';
  }
}

/** How clients see that a run stopped: a paused one is interrupted, and so is one that another attempt continues. */
function toEnding({ status }: Run): EndStatus {
  switch (status) {
    case 'finished':
    case 'aborted':
    case 'failed':
      return status;
    default:
      return 'interrupted';
  }
}

interface Following {
  readonly seen: number;
  readonly waitMs: number;
  readonly signal: AbortSignal;
}

interface Followed {
  readonly seen: number;
  readonly isDone: boolean;
  readonly reason: 'changed' | 'silent';
}

/** Yields frames from another host until a gap, silence or the end. */
async function* follow(
  feed: FeedReader,
  { seen, waitMs, signal }: Following,
): AsyncGenerator<readonly Frame[], Followed> {
  for (let last = seen; ; ) {
    const next = await feed.next(last, waitMs, signal);
    if (typeof next === 'string') return { seen: last, isDone: false, reason: next };
    yield next;
    last = next.at(-1)?.seq ?? last;
    if (next.at(-1)?.event === 'done') return { seen: last, isDone: true, reason: 'changed' };
  }
}

/** Delays the end of an aborted run for a reader that was there when it was aborted. */
async function* delayAborted(
  frames: AsyncGenerator<readonly Frame[]>,
  signal: AbortSignal,
): AsyncGenerator<readonly Frame[]> {
  for await (const batch of frames) {
    const done = batch.at(-1);
    if (done?.event !== 'done' || !isAborted(done)) {
      yield batch;
      continue;
    }
    if (batch.length > 1) yield batch.slice(0, -1);
    await sleep(ABORT_DELAY_MS, undefined, { signal }).catch(() => undefined);
    yield [done];
  }
}

const isAborted = ({ data }: Frame) => (JSON.parse(data) as DoneFrame).status === 'aborted';

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
    const active = this.turns.findActive(run);
    if (active) return toPosition(run, active.log.lastSeq);
    return hasEnded(run) ? endOfRun(run) : toPosition(run, run.lastSeq);
  }

  /** Yields the events after a position, oldest first. */
  async *after(key: SessionKey, seen: Position): AsyncGenerator<ServerEvent> {
    let runs = await this.runs.list({ ...key, fromTurn: seen.turn });
    while (runs.length > 0) {
      for (const run of runs) yield* this.readEvents(run, seqIn(run, seen));
      runs = await this.runs.list({ ...key, fromTurn: (runs.at(-1)?.turn ?? 0) + 1 });
    }
  }

  private async *readEvents(run: Run, after: number): AsyncGenerator<ServerEvent> {
    for await (const frames of this.readFrames(run, after)) {
      for (const frame of frames) {
        // Most frames are texts, which sockets do not receive: they are not parsed.
        if (!Object.hasOwn(serverEvents, frame.event)) continue;
        const event = toServerEvent(toReplyPart(frame), toPosition(run, frame.seq));
        if (event) yield event;
      }
    }
  }

  private async *readFrames(
    { owner, runId }: Run,
    after: number,
  ): AsyncGenerator<readonly Frame[]> {
    const active = this.turns.findActive({ owner, runId });
    if (active) yield active.log.since(after);
    else yield* this.runs.framePages({ owner, runId, after });
  }
}

const toReplyPart = ({ event, data }: Frame) => ({ event, data: JSON.parse(data) }) as ReplyPart;
