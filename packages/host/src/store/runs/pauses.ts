import type { Values } from '@sibyl/plugin-kit/tables';
import type { JsonObject, PendingAnswer } from '@sibyl/protocol';
import { type Kysely, sql } from 'kysely';
import type { SessionKey } from '../../bus/event-bus.js';
import { insertActivity } from '../activity-store.js';
import { prepareQuery, type StoreContext } from '../database.js';
import { saveAnswer } from '../message-store.js';
import type { ApprovalRow } from '../schema/approvals.js';
import type { Schema } from '../schema/index.js';
import { type InterruptRow, interrupts } from '../schema/interrupts.js';
import { type CancelReason, isActive, isOpen, type RunKey, type RunRow } from '../schema/runs.js';
import { insertFrames, insertSteps } from './frames.js';
import {
  deleteSteps,
  findRun,
  insertRun,
  lockSession,
  promoteNext,
  RUN_COLUMNS,
  type Run,
  type RunEnd,
  toAnswer,
  toRun,
  toUsageColumns,
} from './run.js';

/** An interrupt of a run that pauses. */
export interface NewInterrupt extends PendingAnswer {
  readonly callId: string;
  readonly path: string;
  /** JSON Schema of the answer. */
  readonly schema: JsonObject;
  /** What it is about; encrypted, as the answer is. */
  readonly data?: unknown;
  readonly expiresInMs: number;
  /** Set if the question is whether a call may run; `request` is encrypted. */
  readonly approval?: (Omit<NewApproval, 'request'> & { readonly request: unknown }) | undefined;
}

/** A question that a paused run asked; times in milliseconds, by the clock of the database. */
export interface Interrupt
  extends Omit<Values<typeof interrupts>, 'data' | 'answer' | 'answeredAt'> {
  readonly data: unknown;
  /** The answer. */
  readonly value: unknown;
}

/** How a run pauses. */
export interface Pause {
  readonly interrupts: readonly NewInterrupt[];
  readonly end: Omit<RunEnd, 'status'>;
  /** For the next attempt; encrypted. */
  readonly request: unknown;
  /** The most paused runs of the owner, including this one. */
  readonly limit: number;
}

export type PauseResult =
  | { readonly state: 'paused'; readonly run: Run }
  | { readonly state: 'too-many' }
  | { readonly state: 'canceled'; readonly reason: CancelReason }
  /** It ended already, or another host has it. */
  | { readonly state: 'lost' };

/**
 * Pauses a run inside a unit of work: it keeps its session, but no host. Not one that was canceled: the turn that
 * canceled it would wait for it until its interrupts expire.
 */
export async function pauseRun(
  tables: Kysely<Schema>,
  { owner, runId, hostId, steps, seal, end, ...pause }: PauseRequest,
  { clock, database, newId }: StoreContext,
): Promise<PauseResult> {
  const now = clock();
  const key = { owner, runId };
  const [session] = (await lockSession(tables, { ...key, now })).rows;
  if (session === undefined) return { state: 'lost' };
  const { rows } = await findRun(tables, key);
  const reason = rows[0]?.abort_requested;
  if (reason && rows[0]?.host_id === hostId) return { state: 'canceled', reason };
  const { rows: paused } = await selectPaused(tables, { owner });
  // Without this run: the reply to an attempt that paused it may have been lost.
  if (paused.filter(({ id }) => id !== runId).length >= pause.limit) return { state: 'too-many' };
  const { frames = [], usage, report } = end;
  const [row] = (
    await markPaused(tables, {
      ...key,
      hostId,
      now,
      request: seal('request', pause.request),
      report: report ? JSON.stringify(report) : null,
      last_seq: frames.at(-1)?.seq ?? null,
      ...toUsageColumns(usage),
    })
  ).rows;
  if (row === undefined) return { state: 'lost' };
  const run = toRun(row);
  const numbers = { seq: session.lastSeq, createdAt: now };
  await saveAnswer(tables, { ...end.message, ...toAnswer(run), ...numbers });
  await insertFrames(tables, key, frames);
  if (end.activity) await insertActivity(tables, end.activity);
  for (const { step, data } of steps)
    await insertSteps(tables, [{ owner, run_id: runId, step, data, created_at: now }]);
  const time = await readTime(tables, database.engine, now);
  for (const [i, { approval, ...interrupt }] of pause.interrupts.entries()) {
    // Each a millisecond later than the one before, so that lists show them in this order.
    const stored = toInterruptRow(run, interrupt, { seal, time, now: now + i });
    await insertInterrupt(tables, stored);
    if (!approval) continue;
    const { id, created_at, expires_at } = stored;
    const request = seal('approval', approval.request);
    await insertApproval(tables, run, { ...approval, request, id, created_at, expires_at }, newId);
  }
  return { state: 'paused', run };
}

function toInterruptRow(
  { owner, sessionId, runId, turn }: Run,
  { data, expiresInMs, ...interrupt }: NewInterrupt,
  { seal, time, now }: Pick<PauseRequest, 'seal'> & Record<'time' | 'now', number>,
): InterruptRow {
  return interrupts.toRow({
    ...{ ...interrupt, owner, sessionId, runId, turn, status: 'open' },
    data: data === undefined ? undefined : seal('interrupt', data),
    expiresAt: time + expiresInMs,
    createdAt: now,
  });
}

interface PauseRequest extends Pause, RunKey {
  readonly hostId: string;
  /** Encrypted. */
  readonly steps: readonly { readonly step: number; readonly data: string }[];
  readonly seal: (kind: 'request' | 'interrupt' | 'approval', value: unknown) => string;
}

const selectPaused = prepareQuery((tables, { owner }: { owner: string }) =>
  tables
    .selectFrom('runs')
    .select('id')
    .where('owner', '=', owner)
    .where(isOpen)
    .where('status', '=', 'paused'),
);

/** Those of the runs that are paused. */
export async function selectPausedRuns(
  tables: Kysely<Schema>,
  keys: readonly RunKey[],
): Promise<readonly RunKey[]> {
  if (keys.length === 0) return [];
  const rows = await tables
    .selectFrom('runs')
    .select(['owner', 'id'])
    .where('owner', 'in', [...new Set(keys.map(({ owner }) => owner))])
    .where('id', 'in', [...new Set(keys.map(({ runId }) => runId))])
    .where('status', '=', 'paused')
    .execute();
  return rows.map(({ owner, id }) => ({ owner, runId: id }));
}

type PausedValues = Pick<
  RunRow,
  'request' | 'report' | 'input_tokens' | 'output_tokens' | 'cached_tokens' | 'usage' | 'cost'
> & {
  readonly last_seq: number | null;
  readonly hostId: string;
  readonly now: number;
};

const markPaused = prepareQuery(
  (tables, { owner, runId, hostId, now, last_seq, ...values }: RunKey & PausedValues) =>
    tables
      .updateTable('runs')
      .set((e) => ({
        ...values,
        status: 'paused',
        host_id: null,
        updated_at: now,
        last_seq: e.fn.coalesce(e.val(last_seq), 'last_seq'),
      }))
      .where('owner', '=', owner)
      .where('id', '=', runId)
      .where('host_id', '=', hostId)
      .where('status', '=', 'running')
      .returning(RUN_COLUMNS),
);

const insertInterrupt = prepareQuery((tables, row: InterruptRow) =>
  tables.insertInto('interrupts').values(row),
);

/** Ends a paused run inside a unit of work: a new message or an abort replaces its answers. */
export async function cancelPausedRun(
  tables: Kysely<Schema>,
  { owner, runId }: RunKey,
  { reason = 'interrupted', ...context }: StoreContext & { readonly reason?: CancelReason },
): Promise<Run | undefined> {
  const now = context.clock();
  const row = await tables
    .updateTable('runs')
    .set({ status: reason, request: null, updated_at: now })
    .where('owner', '=', owner)
    .where('id', '=', runId)
    .where('status', '=', 'paused')
    .returning(RUN_COLUMNS)
    .executeTakeFirst();
  if (row === undefined) return undefined;
  const canceled = await tables
    .updateTable('interrupts')
    .set({ status: 'cancelled', answered_at: now })
    .where('owner', '=', owner)
    .where('run_id', '=', runId)
    .where('status', '=', 'open')
    .returning('id')
    .execute();
  const ids = canceled.map(({ id }) => id);
  await recordEnd(tables, { owner, ids, outcome: 'cancelled', by: 'host' }, context);
  const run = toRun(row);
  await deleteSteps(tables, run);
  return run;
}

/** The run that was canceled, and the one that a paused run had blocked. */
export interface Canceled {
  readonly run?: Run | undefined;
  readonly next?: Run | undefined;
}

/** Cancels a run inside a unit of work: ends a paused one, marks a running one. */
export async function cancelRun(
  tables: Kysely<Schema>,
  { owner, runId }: RunKey,
  context: StoreContext & { readonly hostId: string; readonly reason: CancelReason },
): Promise<Canceled> {
  const { hostId, reason } = context;
  const now = context.clock();
  // Otherwise a turn that is being queued behind a paused one would not be promoted.
  await lockSession(tables, { owner, runId, now });
  const row = await tables
    .updateTable('runs')
    .set((e) => ({ abort_requested: e.fn.coalesce('abort_requested', e.val(reason)) }))
    .where('owner', '=', owner)
    .where('id', '=', runId)
    .where(isActive)
    .returning(RUN_COLUMNS)
    .executeTakeFirst();
  if (row === undefined) return {};
  if (row.status !== 'paused') return { run: toRun(row) };
  const run = await cancelPausedRun(tables, { owner, runId }, context);
  const promotion = { owner, sessionId: row.session_id, now, host: hostId };
  return { run, next: await promoteNext(tables, promotion) };
}

/** How an interrupt ends. */
export interface InterruptEnd {
  readonly owner: string;
  readonly interruptId: string;
  readonly status: 'answered' | 'expired';
  /** Encrypted. */
  readonly answer: string | null;
  /** Encrypted; replaces that of the run. */
  readonly request?: string | null;
  readonly hostId: string;
}

/** How an interrupt ends, not encrypted yet. */
export interface UnsealedEnd extends Pick<InterruptEnd, 'owner' | 'interruptId' | 'status'> {
  readonly value?: unknown;
  readonly request?: unknown;
}

export type AnswerResult =
  | { readonly state: 'unknown' }
  /** The run has ended, or the interrupt has. */
  | { readonly state: 'closed'; readonly interrupt: InterruptRow }
  /** Other interrupts of the run are still open. */
  | { readonly state: 'waiting'; readonly pending: readonly PendingAnswer[] }
  | { readonly state: 'continued'; readonly run: Run };

/** Ends an interrupt inside a unit of work; the last one of a run starts the next attempt of its turn. */
export async function endInterrupt(
  tables: Kysely<Schema>,
  { owner, interruptId, status, answer, request, hostId }: InterruptEnd,
  context: StoreContext,
): Promise<AnswerResult> {
  const { clock, newId, database } = context;
  const found = await findInterrupt(tables, { owner, interruptId });
  if (found === undefined) return { state: 'unknown' };
  const now = clock();
  await lockSession(tables, { owner, runId: found.run_id, now });
  const all = await tables
    .selectFrom('interrupts')
    .selectAll()
    .where('owner', '=', owner)
    .where('run_id', '=', found.run_id)
    .execute();
  const interrupt = all.find(({ id }) => id === interruptId) ?? found;
  if (interrupt.status !== 'open') return { state: 'closed', interrupt };
  const isLate = interrupt.expires_at <= (await readTime(tables, database.engine, now));
  if (status === 'answered' && isLate) return { state: 'closed', interrupt };
  if (status === 'expired')
    await recordEnd(tables, { owner, ids: [interruptId], outcome: status, by: 'host' }, context);
  await updateInterrupt(tables, { owner, interruptId, status, answer, now });
  if (request) await updateRequest(tables, { owner, runId: found.run_id, request });
  const pending = all.filter((each) => each.status === 'open' && each.id !== interruptId);
  if (pending.length > 0)
    return { state: 'waiting', pending: pending.map(({ id, kind }) => ({ id, kind })) };
  const run = await continueRun(tables, { owner, runId: found.run_id, hostId, now, newId });
  return run ? { state: 'continued', run } : { state: 'closed', interrupt };
}

export async function findInterrupt(
  tables: Kysely<Schema>,
  { owner, interruptId }: Pick<InterruptEnd, 'owner' | 'interruptId'>,
): Promise<InterruptRow | undefined> {
  return tables
    .selectFrom('interrupts')
    .selectAll()
    .where('owner', '=', owner)
    .where('id', '=', interruptId)
    .executeTakeFirst();
}

const updateInterrupt = prepareQuery(
  (
    tables,
    { owner, interruptId, status, answer, now }: Omit<InterruptEnd, 'hostId'> & { now: number },
  ) =>
    tables
      .updateTable('interrupts')
      .set({ status, answer, answered_at: now })
      .where('owner', '=', owner)
      .where('id', '=', interruptId),
);

const updateRequest = prepareQuery(
  (tables, { owner, runId, request }: RunKey & { readonly request: string }) =>
    tables
      .updateTable('runs')
      .set({ request })
      .where('owner', '=', owner)
      .where('id', '=', runId)
      .where('status', '=', 'paused'),
);

interface Continuation extends RunKey {
  readonly hostId: string;
  readonly now: number;
  readonly newId: () => string;
}

/** Marks a paused run as continued and inserts the next attempt of its turn. */
async function continueRun(
  tables: Kysely<Schema>,
  { owner, runId, hostId, now, newId }: Continuation,
): Promise<Run | undefined> {
  const row = await tables
    .selectFrom('runs')
    .selectAll()
    .where('owner', '=', owner)
    .where('id', '=', runId)
    .where('status', '=', 'paused')
    .executeTakeFirst();
  if (row === undefined) return undefined;
  const next = toNextAttempt(row, { id: newId(), hostId, now });
  await tables
    .updateTable('runs')
    .set({ status: 'continued', request: null, updated_at: now })
    .where('owner', '=', owner)
    .where('id', '=', runId)
    .execute();
  await insertRun(tables, next);
  await tables
    .updateTable('interrupts')
    .set({ next_run_id: next.id })
    .where('owner', '=', owner)
    .where('run_id', '=', runId)
    .execute();
  return toRun(next);
}

/** The next attempt of the turn of a run; it counts its own usage and frames. */
export function toNextAttempt(
  row: RunRow,
  { id, hostId, now }: { readonly id: string; readonly hostId: string; readonly now: number },
): RunRow {
  return {
    ...row,
    id,
    attempt: row.attempt + 1,
    status: 'running',
    host_id: hostId,
    abort_requested: null,
    report: null,
    error_kind: null,
    error_message: null,
    last_seq: 0,
    input_tokens: 0,
    output_tokens: 0,
    cached_tokens: 0,
    usage: null,
    first_text_ms: null,
    cause: null,
    cost: null,
    trace: null,
    created_at: now,
    started_at: now,
    updated_at: now,
  };
}

/** The answers to the interrupts of a turn, by their calls. */
export const selectAnswers = prepareQuery(
  (tables, { owner, sessionId, turn }: { owner: string; sessionId: string; turn: number }) =>
    tables
      .selectFrom('interrupts')
      .selectAll()
      .where('owner', '=', owner)
      .where('session_id', '=', sessionId)
      .where('turn', '=', turn)
      .orderBy('created_at')
      .orderBy('id'),
);

/** The sessions with open questions for the user; calls of a client's own tools are for its program. */
export const selectAsking = prepareQuery((tables, { owner }: { owner: string }) =>
  tables
    .selectFrom('interrupts')
    .select('session_id')
    .distinct()
    .where('owner', '=', owner)
    .where('status', '=', 'open')
    .where('kind', '<>', 'tool_call'),
);

/** The time of the database, which all hosts share. */
async function readTime(
  tables: Kysely<Schema>,
  engine: 'sqlite' | 'postgres',
  now: number,
): Promise<number> {
  if (engine === 'sqlite') return now;
  const { rows } = await sql<{ time: number }>`
    select (extract(epoch from clock_timestamp()) * 1000)::bigint as time`.execute(tables);
  return rows[0]?.time ?? now;
}

/** Open interrupts that have expired by the clock of the database. */
export function selectExpired(tables: Kysely<Schema>, engine: 'sqlite' | 'postgres', now: number) {
  const time =
    engine === 'postgres'
      ? sql<number>`extract(epoch from clock_timestamp()) * 1000`
      : sql.val(now);
  return tables
    .selectFrom('interrupts')
    .select(['owner', 'id'])
    .where('status', '=', sql.lit('open'))
    .where('expires_at', '<=', time)
    .limit(100)
    .execute();
}

/** What is stored of an approval beside its run; `request` is encrypted. */
export type NewApproval = Pick<
  ApprovalRow,
  'call' | 'call_id' | 'tool' | 'plugin' | 'args_hash' | 'required_by' | 'request'
>;

/** Stores an approval inside the unit of work that pauses its run. */
export async function insertApproval(
  tables: Kysely<Schema>,
  { owner, sessionId, runId }: SessionKey & RunKey,
  approval: NewApproval & Pick<ApprovalRow, 'id' | 'created_at' | 'expires_at'>,
  newId: () => string,
): Promise<void> {
  const { id: approval_id, call_id, tool, created_at } = approval;
  const place = { owner, session_id: sessionId, run_id: runId };
  const undecided = { decision: null, decided_at: null, answer: null, receipt: null };
  await tables
    .insertInto('approvals')
    .values({ ...place, ...approval, ...undecided })
    .execute();
  await insertActivity(tables, [
    {
      ...{ owner, id: newId(), kind: 'approval_requested', createdAt: created_at },
      ...{ sessionId, runId, approvalId: approval_id, toolCallId: call_id, tool },
    },
  ]);
}

interface ApprovalsEnd {
  readonly owner: string;
  /** Ids of interrupts; those that are not approvals are ignored. */
  readonly ids: readonly string[];
  readonly outcome: 'approved' | 'denied' | 'expired' | 'cancelled';
  readonly by: 'signature' | 'request' | 'host';
}

/** Records the end of approvals inside the unit of work that ends them. */
export async function recordEnd(
  tables: Kysely<Schema>,
  { owner, ids, outcome, by }: ApprovalsEnd,
  { clock, newId }: Pick<StoreContext, 'clock' | 'newId'>,
): Promise<void> {
  if (ids.length === 0) return;
  const rows = await tables
    .selectFrom('approvals')
    .select([
      'id as approvalId',
      'session_id as sessionId',
      'run_id as runId',
      'call_id as toolCallId',
      'tool',
    ])
    .where('owner', '=', owner)
    .where('id', 'in', ids)
    .execute();
  const end = { kind: 'approval_decided', outcome, decidedBy: by, createdAt: clock() } as const;
  await insertActivity(
    tables,
    rows.map((row) => ({ owner, id: newId(), ...row, ...end })),
  );
}
