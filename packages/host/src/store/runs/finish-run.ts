import { type Kysely, sql } from 'kysely';
import { insertActivity } from '../activity-store.js';
import type { StoreContext } from '../database.js';
import type { Message, MessageBody } from '../message.js';
import { saveAnswer } from '../message-store.js';
import { prepareQuery } from '../prepared-query.js';
import type { ActivityRow } from '../schema/activity.js';
import type { Schema } from '../schema/index.js';
import type { RunRow } from '../schema/runs.js';
import { type Frame, findLastSeq, insertFrames } from './frames.js';
import {
  type Ending,
  isOpen,
  type Run,
  type RunError,
  type RunKey,
  type RunReport,
  type TokenUsage,
  toRun,
} from './run.js';

/** How a run ends. */
export interface RunEnding {
  readonly status: Ending;
  /** The answer, perhaps partial or empty. */
  readonly message: Omit<MessageBody, 'type' | 'requestId' | 'runId'>;
  /** The last frames of the log. */
  readonly frames?: readonly Frame[] | undefined;
  /** False if it is known that no attempt of the turn has stored a step. */
  readonly hasSteps?: boolean | undefined;
  readonly usage?: TokenUsage | undefined;
  readonly error?: RunError | undefined;
  readonly report?: RunReport | undefined;
  /** Tool calls that have ended and are not stored yet. */
  readonly activity?: readonly ActivityRow[] | undefined;
  readonly trace?: EndedTrace | undefined;
}

/** How a run went, for operators. */
export interface EndedTrace {
  /** A code for why there is no complete answer. */
  readonly cause?: string | undefined;
  readonly firstTextMs?: number | undefined;
  /** JSON of the spans. */
  readonly spans?: string | undefined;
}

/** Which host ends a run, and whether it takes over the next one of the session. */
export interface EndingHost {
  /** Only a run of this host is ended. */
  readonly hostId: string | null;
  /** The host that executes the next run if it accepted it, or if no host has it. */
  readonly next: string | undefined;
}

export interface EndedRun {
  readonly run: Run;
  readonly message: Message;
  /** The next run of the session, which is now running. */
  readonly next?: Run | undefined;
}

interface FinishRequest extends RunKey {
  readonly ending: RunEnding;
  readonly host: EndingHost;
}

/**
 * Ends a run inside a unit of work and promotes the next one of its session; undefined if the owner has no such run, it
 * has ended already, or another host has it.
 */
export async function finishRun(
  tables: Kysely<Schema>,
  { ending, owner, runId, host }: FinishRequest,
  context: StoreContext,
): Promise<EndedRun | undefined> {
  const now = context.clock();
  const key = { owner, runId };
  const [session] = (await lockSession(tables, { ...key, now })).rows;
  if (session === undefined) return undefined;
  const isUnanswered = mayRepeat(ending);
  const report = isUnanswered ? { ...ending.report, isUnanswered } : ending.report;
  const values = toEndingValues({ ...ending, report }, now);
  const [row] = (await endRun(tables, { ...key, ...values, fence: host.hostId })).rows;
  if (row === undefined) return undefined;
  const message = await saveAnswer(tables, {
    ...ending.message,
    ...toAnswer(row),
    seq: session.lastSeq,
    createdAt: now,
  });
  await insertFrames(tables, key, ending.frames ?? []);
  await insertActivity(tables, ending.activity ?? []);
  if (!isUnanswered && ending.hasSteps !== false)
    await deleteSteps(tables, { owner, sessionId: row.session_id, turn: row.turn });
  const next = await promoteNext(tables, {
    owner,
    sessionId: row.session_id,
    now,
    host: host.next,
  });
  return { run: toRun(row), message, next };
}

/** Errors of the host itself, after which the client should send the message again. */
const HOST_ERRORS: readonly string[] = ['host_stopping', 'store_unavailable'];

/**
 * Whether there is no answer only because of the host, or of an error whose Retry-After invites the client to repeat its
 * request: with the same key, it would receive the same error forever.
 */
function mayRepeat({ status, message, report }: RunEnding): boolean {
  const { code, retryAfterSeconds } = report?.error ?? {};
  if (status === 'finished' || code === undefined || message.content) return false;
  return retryAfterSeconds !== undefined || HOST_ERRORS.includes(code);
}

/** Locks the session before the run, in the same order as starting a run; returns the number of the next message. */
export const lockSession = prepareQuery(
  (tables, { owner, runId, now }: RunKey & { readonly now: number }) =>
    tables
      .updateTable('sessions')
      .set((e) => ({ last_seq: e('last_seq', '+', 1), last_updated_at: now }))
      .where('owner', '=', owner)
      .where('id', '=', (e) =>
        e
          .selectFrom('runs')
          .select('session_id')
          .where('owner', '=', owner)
          .where('id', '=', runId)
          .where(isOpen),
      )
      .returning('last_seq as lastSeq'),
);

type EndingValues = Pick<
  RunRow,
  | 'status'
  | 'updated_at'
  | 'error_kind'
  | 'error_message'
  | 'input_tokens'
  | 'output_tokens'
  | 'cached_tokens'
  | 'usage'
  | 'report'
  | 'cause'
  | 'first_text_ms'
  | 'cost'
  | 'trace'
> & { readonly last_seq: number | null };

const endRun = prepareQuery(
  (
    tables,
    { owner, runId, last_seq, fence, ...values }: RunKey & EndingValues & { fence: string | null },
  ) =>
    tables
      .updateTable('runs')
      .set((e) => ({
        ...values,
        request: null,
        last_seq: e.fn.coalesce(e.val(last_seq), 'last_seq'),
      }))
      .where('owner', '=', owner)
      .where('id', '=', runId)
      // Checked again under the lock: another host may have ended the run or taken it over.
      .where(isOpen)
      .where((e) =>
        e(e.fn.coalesce('host_id', e.val('')), '=', e.fn.coalesce(e.val(fence), e.val(''))),
      )
      .returningAll(),
);

function toEndingValues(
  { status, usage, error, report, frames = [], trace }: RunEnding,
  now: number,
): EndingValues {
  return {
    status,
    updated_at: now,
    error_kind: error?.kind ?? null,
    error_message: error?.message ?? null,
    ...toUsageColumns(usage),
    report: report ? JSON.stringify(report) : null,
    cause: trace?.cause ?? null,
    first_text_ms: trace?.firstTextMs === undefined ? null : Math.round(trace.firstTextMs),
    trace: trace?.spans ?? null,
    last_seq: findLastSeq(frames),
  };
}

export function toAnswer(run: RunRow) {
  return {
    type: 'ai',
    id: run.message_id ?? undefined,
    owner: run.owner,
    sessionId: run.session_id,
    requestId: run.request_id,
    runId: run.id,
    turn: run.turn,
    branch: run.branch,
    parent: run.question_id ?? undefined,
  } as const;
}

interface TurnKey {
  readonly owner: string;
  readonly sessionId: string;
  readonly turn: number;
}

/** A turn that has ended is never continued. */
export const deleteSteps = prepareQuery((tables, { owner, sessionId, turn }: TurnKey) =>
  tables
    .deleteFrom('run_steps')
    .where('owner', '=', owner)
    .where('run_id', 'in', (e) =>
      e
        .selectFrom('runs')
        .select('id')
        .where('owner', '=', owner)
        .where('session_id', '=', sessionId)
        .where('turn', '=', turn),
    ),
);

interface Promotion {
  readonly owner: string;
  readonly sessionId: string;
  readonly now: number;
  /** Undefined while it stops: another host takes the run. */
  readonly host: string | undefined;
}

/**
 * Makes the first queued run of a session the running one, if none is running or paused. The host that accepted it
 * starts it; until then `started_at` is null and, if that host dies, any other may start it.
 */
export async function promoteNext(
  tables: Kysely<Schema>,
  { owner, sessionId, now, host }: Promotion,
): Promise<Run | undefined> {
  const { rows } = await selectWaiting(tables, { owner, sessionId });
  const [first] = rows.toSorted((a, b) => a.turn - b.turn);
  if (first === undefined || rows.some(({ status }) => status !== 'queued')) return undefined;
  const isOurs = host !== undefined && (first.hostId === host || first.hostId === null);
  const [row] = (
    await markRunning(tables, {
      owner,
      runId: first.id,
      now,
      hostId: isOurs ? host : first.hostId,
      startedAt: isOurs ? now : null,
    })
  ).rows;
  return row && toRun(row);
}

/** The runs of a session that have not ended and were not canceled. */
const selectWaiting = prepareQuery(
  (tables, { owner, sessionId }: { owner: string; sessionId: string }) =>
    tables
      .selectFrom('runs')
      .select(['id', 'status', 'host_id as hostId', 'turn'])
      .where('owner', '=', owner)
      // An expression, so that SQLite uses the index of open runs instead of reading all runs of the session.
      .where(sql<string>`session_id || ''`, '=', sessionId)
      .where(isOpen)
      // A queued run that was canceled is ended by its host; a running one still blocks the session.
      .where((e) => e.or([e('status', '!=', 'queued'), e('abort_requested', 'is', null)])),
);

interface Start extends RunKey {
  readonly now: number;
  readonly hostId: string | null;
  readonly startedAt: number | null;
}

const markRunning = prepareQuery((tables, { owner, runId, now, hostId, startedAt }: Start) =>
  tables
    .updateTable('runs')
    .set({ status: 'running', updated_at: now, host_id: hostId, started_at: startedAt })
    .where('owner', '=', owner)
    .where('id', '=', runId)
    .where('status', '=', 'queued')
    .returningAll(),
);

export function toUsageColumns(usage: RunEnding['usage']) {
  return {
    input_tokens: usage?.input ?? 0,
    output_tokens: usage?.output ?? 0,
    cached_tokens: usage?.cached ?? 0,
    usage: usage?.models ? JSON.stringify(usage.models) : null,
    cost: usage?.cost ?? null,
  };
}
