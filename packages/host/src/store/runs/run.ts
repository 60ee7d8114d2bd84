import type { SelectedRow, Values } from '@sibyl/plugin-kit/tables';
import type { ErrorKind, RunStatus } from '@sibyl/protocol';
import { type Kysely, sql } from 'kysely';
import type { SessionKey } from '../../bus/event-bus.js';
import { insertActivity } from '../activity-store.js';
import { prepareQuery, type StoreContext } from '../database.js';
import { type Message, type MessageBody, saveAnswer } from '../message-store.js';
import type { Activity } from '../schema/activity.js';
import type { Schema } from '../schema/index.js';
import {
  ENDED,
  isOpen,
  type RunKey,
  type RunReport,
  type RunRow,
  runs,
  type TokenUsage,
} from '../schema/runs.js';
import { type Frame, insertFrames } from './frames.js';

/** How a turn can end; a `continued` run has another attempt. */
export type EndStatus = Exclude<(typeof ENDED)[number], 'continued'>;

/** The active run of a session, or only a certain run if it is the active one. */
export interface ActiveRunKey extends SessionKey {
  readonly runId?: string | undefined;
}

interface RunError {
  readonly kind: ErrorKind;
  readonly message: string;
}

/** What a `Run` is read from; the rest can be megabytes, or only operators need it. */
const runFacts = runs.without('request', 'usage', 'first_text_ms', 'cause', 'cost', 'trace');

export const RUN_COLUMNS = runFacts.columnNames;

type RunValues = Values<typeof runFacts>;
type Grouped = 'inputTokens' | 'outputTokens' | 'cachedTokens' | 'errorKind' | 'errorMessage';

/** One attempt to execute a turn; times in milliseconds. */
export interface Run extends Omit<RunValues, Grouped> {
  readonly messageId: string;
  readonly usage: TokenUsage;
  readonly error?: RunError;
  readonly report: RunReport;
}

export function toRun(row: SelectedRow<typeof runFacts>): Run {
  const {
    inputTokens,
    outputTokens,
    cachedTokens,
    errorKind: kind,
    errorMessage,
    ...run
  } = runFacts.toValues(row);
  return {
    ...run,
    messageId: run.messageId ?? '',
    usage: { input: inputTokens, output: outputTokens, cached: cachedTokens },
    report: run.report ?? {},
    ...(kind && { error: { kind, message: errorMessage ?? '' } }),
  };
}

export const hasEnded = <R extends Pick<Run, 'status'>>(
  run: R,
): run is R & { readonly status: (typeof ENDED)[number] } =>
  (ENDED as readonly RunStatus[]).includes(run.status);

/** Whether no frame will follow: the run has ended or waits for an answer. */
export const hasStopped = (run: Pick<Run, 'status'>): boolean =>
  run.status === 'paused' || hasEnded(run);

/** Whether its host crashed and another attempt continues it; a paused run that was answered is `continued` too. */
export const hasCrashed = ({ status, report }: Pick<Run, 'status' | 'report'>): boolean =>
  status === 'continued' && !report.pending;

export const insertRun = prepareQuery((tables, row: RunRow) =>
  tables.insertInto('runs').values(row),
);

export const findRun = prepareQuery((tables, { owner, runId }: RunKey) =>
  tables.selectFrom('runs').select(RUN_COLUMNS).where('owner', '=', owner).where('id', '=', runId),
);

interface Claim extends RunKey {
  readonly from: string;
  readonly hostId: string;
  readonly now: number;
}

export const claimRun = prepareQuery((tables, { owner, runId, from, hostId, now }: Claim) =>
  tables
    .updateTable('runs')
    .set({ host_id: hostId, started_at: now, updated_at: now })
    .where('owner', '=', owner)
    .where('id', '=', runId)
    .where((e) => e(e.fn.coalesce('host_id', e.val('')), '=', from))
    .where('status', '=', 'running')
    .where('started_at', 'is', null)
    .returning(RUN_COLUMNS),
);

/** Only a run that has written nothing but its first frame: a tool that has run must not run again. */
export const unstartRun = prepareQuery(
  (tables, { owner, runId, hostId }: RunKey & { readonly hostId: string }) =>
    tables
      .updateTable('runs')
      .set({ host_id: null, started_at: null })
      .where('owner', '=', owner)
      .where('id', '=', runId)
      .where('host_id', '=', hostId)
      .where('status', '=', 'running')
      .where('last_seq', '<=', 1)
      .where(({ not, exists, selectFrom }) =>
        not(
          exists(
            selectFrom('run_steps')
              .select('step')
              .where('run_steps.owner', '=', owner)
              .where('run_steps.run_id', '=', runId),
          ),
        ),
      )
      .returning(RUN_COLUMNS),
);

/** A turn of a user: its first run, and the latest one. */
interface StoredTurn {
  readonly first: Run;
  readonly latest: Run;
}

interface TurnQuery {
  readonly owner: string;
  /** Default: all sessions. */
  readonly sessionId?: string | undefined;
  readonly statuses?: readonly RunStatus[] | undefined;
  readonly updatedAfter?: number | undefined;
}

interface TurnPageQuery extends TurnQuery {
  readonly limit: number;
  /** The latest run of a turn: those before it. */
  readonly before?: string | undefined;
}

/** The turns of users, in the order in which their latest runs began. */
export class TurnStore {
  constructor(private readonly context: StoreContext) {}

  /** Newest first, and how many there are. */
  async list({ limit, before, ...query }: TurnPageQuery): Promise<{
    readonly turns: readonly StoredTurn[];
    readonly total: number;
  }> {
    const page = this.select(query)
      .select(RUN_COLUMNS)
      .$if(before !== undefined, (q) => q.where('id', '<', before ?? ''))
      .orderBy('id', 'desc')
      .limit(limit);
    const latest = (await page.execute()).map(toRun);
    const { total } = await this.select(query)
      .select((e) => e.fn.countAll<number>().as('total'))
      .executeTakeFirstOrThrow();
    const firsts = await Promise.all(latest.map((run) => this.findFirst(run)));
    const turns = latest.map((run, i) => ({ latest: run, first: firsts[i] ?? run }));
    return { turns, total: Number(total) };
  }

  private select({ owner, sessionId, statuses, updatedAfter }: TurnQuery) {
    return (
      this.context.database.tables
        .selectFrom('runs')
        .where('owner', '=', owner)
        .where('status', '<>', 'continued')
        .$if(sessionId !== undefined, (q) => q.where('session_id', '=', sessionId ?? ''))
        // Never an empty list, which is not valid SQL.
        .$if(statuses !== undefined, (q) =>
          q.where('status', 'in', ['continued', ...(statuses ?? [])]),
        )
        .$if(updatedAfter !== undefined, (q) => q.where('updated_at', '>=', updatedAfter ?? 0))
    );
  }

  private async findFirst(run: Run): Promise<Run | undefined> {
    if (run.attempt === 1) return run;
    const row = await this.context.database.tables
      .selectFrom('runs')
      .select(RUN_COLUMNS)
      .where('owner', '=', run.owner)
      .where('session_id', '=', run.sessionId)
      .where('turn', '=', run.turn)
      .orderBy('attempt')
      .limit(1)
      .executeTakeFirst();
    return row && toRun(row);
  }
}

/** How a run ends. */
export interface RunEnd {
  readonly status: EndStatus;
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
  readonly activity?: readonly Activity[] | undefined;
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
interface EndingHost {
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
  readonly end: RunEnd;
  readonly host: EndingHost;
}

/**
 * Ends a run inside a unit of work and promotes the next one of its session; undefined if the owner has no such run, it
 * has ended already, or another host has it.
 */
export async function finishRun(
  tables: Kysely<Schema>,
  { end: ending, owner, runId, host }: FinishRequest,
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
  const run = toRun(row);
  const numbers = { seq: session.lastSeq, createdAt: now };
  const message = await saveAnswer(tables, { ...ending.message, ...toAnswer(run), ...numbers });
  await insertFrames(tables, key, ending.frames ?? []);
  if (ending.activity?.length) await insertActivity(tables, ending.activity);
  if (!isUnanswered && ending.hasSteps !== false) await deleteSteps(tables, run);
  const next = await promoteNext(tables, {
    owner,
    sessionId: run.sessionId,
    now,
    host: host.next,
  });
  return { run, message, next };
}

/** Errors of the host itself, after which the client should send the message again. */
const HOST_ERRORS: readonly string[] = ['host_stopping', 'store_unavailable'];

/**
 * Whether there is no answer only because of the host, or of an error whose Retry-After invites the client to repeat its
 * request: with the same key, it would receive the same error forever.
 */
function mayRepeat({ status, message, report }: RunEnd): boolean {
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

type EndingValues = ReturnType<typeof toEndingValues>;

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
      .returning(RUN_COLUMNS),
);

function toEndingValues({ status, usage, error, report, frames = [], trace }: RunEnd, now: number) {
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
    last_seq: frames.at(-1)?.seq ?? null,
  };
}

/** The key and the place of the answer of a run. */
export function toAnswer(run: Run) {
  const {
    owner,
    sessionId,
    requestId,
    runId,
    turn,
    branch,
    messageId: id,
    questionId: parent,
  } = run;
  return { type: 'ai', id, owner, sessionId, requestId, runId, turn, branch, parent } as const;
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
    .returning(RUN_COLUMNS),
);

export function toUsageColumns(usage: RunEnd['usage']) {
  return {
    input_tokens: usage?.input ?? 0,
    output_tokens: usage?.output ?? 0,
    cached_tokens: usage?.cached ?? 0,
    usage: usage?.models ? JSON.stringify(usage.models) : null,
    cost: usage?.cost ?? null,
  };
}
