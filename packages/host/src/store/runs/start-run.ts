import { errorCatalog, type Multitask } from '@sibyl/protocol';
import { type Kysely, sql } from 'kysely';
import type { SessionKey } from '../../bus/event-bus.js';
import { closeGap, type PathKey, type TurnOrigin } from '../branches.js';
import type { StoreContext } from '../database.js';
import { claimKey } from '../idempotency-store.js';
import type { MessageBody } from '../message.js';
import { type OpenedTurn, openTurn } from '../message-store.js';
import { prepareQuery } from '../prepared-query.js';
import type { Schema } from '../schema/index.js';
import type { RunRow } from '../schema/runs.js';
import { insertClientIds } from '../thread-store.js';
import { lockSession, promoteNext } from './finish-run.js';
import { cancelPausedRun, toNextAttempt } from './interrupts.js';
import {
  findLatestAttempt,
  findRun,
  insertRun,
  isOpen,
  type Run,
  type RunKey,
  toRun,
} from './run.js';

/** Runs of a user that were canceled but have not ended yet may exceed the limit by this factor. */
const CANCELED_FACTOR = 2;

export interface NewRun {
  /** Chosen by the caller, so that it can find the run if the reply of the database is lost. */
  readonly runId: string;
  readonly owner: string;
  readonly sessionId: string;
  readonly requestId: string;
  readonly traceparent?: string | undefined;
  readonly message: Pick<MessageBody, 'content' | 'parts' | 'metadata'>;
  /** Default: the end of the active branch. */
  readonly origin?: TurnOrigin | undefined;
  /** The ids that a client gave the message. */
  readonly clientIds?: readonly string[] | undefined;
  /** What to do if the session has a running turn. */
  readonly multitask: Multitask;
  /** A paused turn makes this one wait instead of being canceled by it. */
  readonly waitsForPaused?: boolean | undefined;
  readonly limits: {
    /** Running and queued turns of the owner, including this one. */
    readonly live: number;
    /** Turns that wait in one session. */
    readonly waiting: number;
  };
  /** Encrypts the request for another host; called if the run has to wait or may be resumed. */
  readonly seal: () => string;
  /** Whether the request is stored even if the run starts immediately. */
  readonly isResumable?: boolean | undefined;
  /** A repeated request with this key returns this run instead of starting another. */
  readonly idempotency?:
    | { readonly key: string; readonly bodyHash: string; readonly expiresAt: number }
    | undefined;
  /** Called as soon as others see the run, if that is before it is on disk. */
  readonly onCommit?: ((result: StartResult) => void) | undefined;
}

/** Why a message was not accepted. */
export type RefusedState =
  | 'unknown-session'
  | 'unknown-message'
  | 'too-many'
  | 'busy'
  | 'queue-full';

export interface StartedRun {
  readonly state: 'started';
  readonly run: Run;
  /** The runs that this one cancels; their hosts end them. */
  readonly canceled: readonly OpenRun[];
  /** The run that had waited for a paused one, which this one cancels. */
  readonly next?: Run | undefined;
}

export type StartResult =
  | StartedRun
  | { readonly state: RefusedState }
  | { readonly state: 'existing'; readonly runId: string }
  | { readonly state: 'conflict' }
  /** The turn of a repeated request ended without an answer, and later turns exist. */
  | { readonly state: 'superseded' };

/** A run of the owner that has not ended. */
export interface OpenRun {
  readonly runId: string;
  readonly sessionId: string;
  readonly status: 'queued' | 'running' | 'paused';
  readonly hostId: string | null;
  readonly cancelReason: string | null;
}

/** Rolls back the unit of work. */
class RefusedStart extends Error {
  readonly state: RefusedState;

  constructor(state: RefusedState) {
    super(state);
    this.state = state;
  }
}

/** Stores key, user message and run in one unit of work, or nothing. */
export async function startRun(
  request: NewRun,
  hostId: string,
  context: StoreContext,
): Promise<StartResult> {
  try {
    return await context.database.writeFor(
      request.owner,
      (tables) => insertStart(tables, request, { ...context, hostId }),
      { onCommit: request.onCommit },
    );
  } catch (error) {
    if (error instanceof RefusedStart) return { state: error.state };
    throw error;
  }
}

async function insertStart(
  tables: Kysely<Schema>,
  request: NewRun,
  context: StoreContext & { readonly hostId: string },
): Promise<StartResult> {
  const { runId, owner, sessionId, idempotency } = request;
  if (idempotency !== undefined) {
    const claim = await claimKey(tables, { ...idempotency, owner, runId }, context.clock());
    if (claim.state === 'conflict') return claim;
    if (claim.state === 'existing') return repeatStart(tables, request, claim.runId, context);
  }
  const answerId = context.newId();
  // Locks the session, so that no turn of it ends between the decision below and the commit.
  const opened = await openTurn(tables, { ...request, runId, answerId }, context);
  if (typeof opened === 'string') throw new RefusedStart(opened);
  const { clientIds = [] } = request;
  await insertClientIds(tables, request, { clientIds, messageId: opened.askedId });
  const { rows: open } = await selectOpen(tables, { owner });
  assertAdmitted(request, open);
  const ofSession = open.filter((run) => run.sessionId === sessionId);
  const paused = ofSession.find(({ status }) => status === 'paused');
  if (paused && !request.waitsForPaused)
    await cancelPausedRun(tables, { owner, runId: paused.runId }, context);
  const canceled = request.multitask === 'interrupt' ? ofSession.filter(isLive) : [];
  if (canceled.length > 0)
    await requestCancel(tables, { owner, sessionId, reason: 'interrupted', turn: opened.turn });
  const waits = ofSession.some((run) => isLive(run) || (run === paused && request.waitsForPaused));
  const row = createRow(request, {
    opened,
    hostId: context.hostId,
    messageId: answerId,
    status: waits ? 'queued' : 'running',
  });
  await insertRun(tables, row);
  const promotion = { owner, sessionId, now: opened.createdAt, host: context.hostId };
  const next = paused ? await promoteNext(tables, promotion) : undefined;
  return { state: 'started', run: toRun(row), canceled, next };
}

/** Returns the turn that the first request started; starts its next attempt if it may be tried again. */
async function repeatStart(
  tables: Kysely<Schema>,
  request: NewRun,
  firstRunId: string,
  { hostId, clock }: StoreContext & { readonly hostId: string },
): Promise<StartResult> {
  const { runId: id, owner, sessionId } = request;
  const latest = await findLatestAttempt(tables, { owner, runId: firstRunId });
  if (!latest || !toRun(latest).report.isUnanswered)
    return { state: 'existing', runId: latest?.id ?? firstRunId };
  const { rows } = await lockLastTurn(tables, { owner, sessionId });
  if (rows[0] === undefined) throw new RefusedStart('unknown-session');
  // Turns are executed in order.
  if (rows[0].lastTurn !== latest.turn) return { state: 'superseded' };
  assertAdmitted(request, (await selectOpen(tables, { owner })).rows);
  const next = toNextAttempt(latest, { id, hostId, now: clock() });
  const row = { ...next, request: request.isResumable ? request.seal() : null };
  await insertRun(tables, row);
  return { state: 'started', run: toRun(row), canceled: [] };
}

/** An update, because it locks the row on PostgreSQL: the session is not deleted before the run is stored. */
const lockLastTurn = prepareQuery((tables, { owner, sessionId }: SessionKey) =>
  tables
    .updateTable('sessions')
    .set((e) => ({ last_turn: e.ref('last_turn') }))
    .where('owner', '=', owner)
    .where('id', '=', sessionId)
    .returning('last_turn as lastTurn'),
);

const isLive = ({ status }: OpenRun) => status !== 'paused';

function assertAdmitted(request: NewRun, open: readonly OpenRun[]): void {
  const { sessionId, multitask, limits } = request;
  const live = open.filter(isLive);
  const remaining = live.filter(
    ({ cancelReason, sessionId: id }) =>
      cancelReason === null && !(multitask === 'interrupt' && id === sessionId),
  );
  if (remaining.length >= limits.live || live.length >= limits.live * CANCELED_FACTOR)
    throw new RefusedStart('too-many');
  const ofSession = remaining.filter((run) => run.sessionId === sessionId);
  if (multitask === 'reject' && ofSession.length > 0) throw new RefusedStart('busy');
  if (ofSession.length > limits.waiting) throw new RefusedStart('queue-full');
}

/** The runs of an owner that have not ended. */
export const selectOpen = prepareQuery((tables, { owner }: { owner: string }) =>
  tables
    .selectFrom('runs')
    .select([
      'id as runId',
      'session_id as sessionId',
      'status',
      'host_id as hostId',
      'abort_requested as cancelReason',
    ])
    .where('owner', '=', owner)
    // Literally as in the index `runs_open_by_owner`: with parameters, neither engine would use it.
    .where(sql<boolean>`status in ('queued', 'running', 'paused')`)
    .$narrowType<{ status: OpenRun['status'] }>(),
);

interface CancelRequest {
  readonly owner: string;
  readonly sessionId: string;
  readonly reason: 'aborted' | 'interrupted';
  /** Only earlier turns. */
  readonly turn: number;
}

/** Marks the running and queued runs of a session as canceled. */
const requestCancel = prepareQuery((tables, { owner, sessionId, reason, turn }: CancelRequest) =>
  tables
    .updateTable('runs')
    .set({ abort_requested: reason })
    .where('owner', '=', owner)
    // An expression, so that SQLite uses the index of open runs instead of reading all runs of the session.
    .where(sql<string>`session_id || ''`, '=', sessionId)
    .where('turn', '<', turn)
    .where(sql<boolean>`status in ('queued', 'running', 'paused')`)
    .where('abort_requested', 'is', null),
);

interface RunDecision {
  readonly opened: OpenedTurn;
  readonly hostId: string;
  readonly messageId: string;
  readonly status: 'queued' | 'running';
}

function createRow(request: NewRun, { opened, hostId, messageId, status }: RunDecision): RunRow {
  const now = opened.createdAt;
  const isStored = status === 'queued' || request.isResumable;
  return {
    id: request.runId,
    session_id: request.sessionId,
    owner: request.owner,
    request_id: request.requestId,
    turn: opened.turn,
    branch: opened.branch,
    question_id: opened.questionId,
    attempt: 1,
    status,
    host_id: hostId,
    abort_requested: null,
    request: isStored ? request.seal() : null,
    message_id: messageId,
    error_kind: null,
    error_message: null,
    report: null,
    last_seq: 0,
    input_tokens: 0,
    output_tokens: 0,
    cached_tokens: 0,
    usage: null,
    traceparent: request.traceparent ?? null,
    first_text_ms: null,
    cause: null,
    cost: null,
    trace: null,
    created_at: now,
    started_at: status === 'running' ? now : null,
    updated_at: now,
  };
}

/** Why a run that was withdrawn has no answer. */
export const WITHDRAWN = 'message_withdrawn';

export type WithdrawResult =
  | { readonly state: 'withdrawn'; readonly run: Run }
  | { readonly state: 'unknown' }
  /** Its turn has begun or ended. */
  | { readonly state: 'begun' };

/** Takes back a queued run with its question, unless another one answers that too, inside a unit of work. */
export async function withdrawRun(
  tables: Kysely<Schema>,
  { owner, runId }: RunKey,
  { clock }: StoreContext,
): Promise<WithdrawResult> {
  const now = clock();
  await lockSession(tables, { owner, runId, now });
  const report = JSON.stringify({
    error: { code: WITHDRAWN, message: errorCatalog[WITHDRAWN][1] },
  });
  const row = await tables
    .updateTable('runs')
    .set({ status: 'aborted', request: null, updated_at: now, report })
    .where('owner', '=', owner)
    .where('id', '=', runId)
    .where('status', '=', 'queued')
    .where('abort_requested', 'is', null)
    .returningAll()
    .executeTakeFirst();
  if (row === undefined)
    return { state: (await hasRun(tables, owner, runId)) ? 'begun' : 'unknown' };
  const { session_id: sessionId, branch, turn, question_id: questionId } = row;
  const withdrawn = { owner, sessionId, branch, turn, answerId: row.message_id ?? '' };
  const keptId = questionId ?? (await findQuestionToKeep(tables, withdrawn));
  const question = keptId === undefined ? await deleteQuestion(tables, withdrawn) : undefined;
  await closeGap(tables, { ...withdrawn, question, parent: keptId ?? question?.parent ?? null });
  if (questionId) await withdrawQuestion(tables, { owner, sessionId, questionId });
  return { state: 'withdrawn', run: toRun(row) };
}

/** The question of a turn if another open one answers it again. */
async function findQuestionToKeep(
  tables: Kysely<Schema>,
  { owner, sessionId, branch, turn }: PathKey & { readonly turn: number },
): Promise<string | undefined> {
  const row = await tables
    .selectFrom('messages')
    .select('id')
    .where('owner', '=', owner)
    .where('session_id', '=', sessionId)
    .where('branch', '=', branch)
    .where('turn', '=', turn)
    .where('id', 'in', (e) =>
      e
        .selectFrom('runs')
        .select(sql<string>`question_id`.as('id'))
        .where('owner', '=', owner)
        .where('session_id', '=', sessionId)
        .where(isOpen)
        .where('question_id', 'is not', null),
    )
    .executeTakeFirst();
  return row?.id;
}

/** Takes back a question that stayed because another turn answered it again, once none does. */
async function withdrawQuestion(
  tables: Kysely<Schema>,
  { owner, sessionId, questionId }: SessionKey & { readonly questionId: string },
): Promise<void> {
  const question = await tables
    .selectFrom('messages')
    .select(['branch', 'turn', 'run_id as runId'])
    .where('owner', '=', owner)
    .where('id', '=', questionId)
    .where(({ not, exists, selectFrom }) =>
      not(
        exists(
          selectFrom('messages as answers')
            .select('answers.id')
            .where('answers.owner', '=', owner)
            .where('answers.session_id', '=', sessionId)
            .where('answers.parent', '=', questionId)
            .where('answers.type', '=', 'ai'),
        ),
      ),
    )
    .executeTakeFirst();
  const [first] = question?.runId
    ? (await findRun(tables, { owner, runId: question.runId })).rows
    : [];
  if (!question || !first || toRun(first).report.error?.code !== WITHDRAWN) return;
  const { branch, turn } = question;
  const withdrawn = { owner, sessionId, branch, turn, answerId: questionId };
  if (await findQuestionToKeep(tables, withdrawn)) return;
  const deleted = await deleteQuestion(tables, withdrawn);
  await closeGap(tables, { ...withdrawn, question: deleted, parent: deleted?.parent ?? null });
}

const deleteQuestion = (
  tables: Kysely<Schema>,
  { owner, sessionId, branch, turn }: PathKey & { readonly turn: number },
) =>
  tables
    .deleteFrom('messages')
    .where('owner', '=', owner)
    .where('session_id', '=', sessionId)
    .where('branch', '=', branch)
    .where('turn', '=', turn)
    .returning(['id', 'parent'])
    .executeTakeFirst();

async function hasRun(tables: Kysely<Schema>, owner: string, id: string): Promise<boolean> {
  const runs = tables.selectFrom('runs').select('id').where('owner', '=', owner);
  return (await runs.where('id', '=', id).executeTakeFirst()) !== undefined;
}
