import type { ErrorKind, PendingAnswer, ReplyWarning, RunStatus } from '@sibyl/protocol';
import { type Kysely, sql } from 'kysely';
import type { SessionKey } from '../../bus/event-bus.js';
import type { StoreContext } from '../database.js';
import { prepareQuery } from '../prepared-query.js';
import type { Schema } from '../schema/index.js';
import type { RunRow } from '../schema/runs.js';

/** The states of a run that has ended. */
export const ENDED = [
  'finished',
  'aborted',
  'interrupted',
  'failed',
  'continued',
] as const satisfies readonly RunStatus[];

/** Literally as in the indexes, so that the engines use them. */
export const isOpen = sql<boolean>`status in ('queued', 'running', 'paused')`;

export const isActive = sql<boolean>`status in ('running', 'paused')`;

/** How a turn can end; a `continued` run has another attempt. */
export type Ending = Exclude<(typeof ENDED)[number], 'continued'>;

/** Why a run is canceled: a user aborts it; another turn or the host interrupts it. */
export type CancelReason = 'aborted' | 'interrupted';

export interface RunKey {
  readonly owner: string;
  readonly runId: string;
}

/** The active run of a session, or only a certain run if it is the active one. */
export interface ActiveRunKey extends SessionKey {
  readonly runId?: string | undefined;
}

export interface TokenUsage {
  readonly input: number;
  readonly output: number;
  readonly cached: number;
  /** In the currency of the configured prices; stored with the report. */
  readonly cost?: number | undefined;
  /** The same by model. */
  readonly models?: readonly (TokenUsage & { readonly model: string })[] | undefined;
}

export interface RunError {
  readonly kind: ErrorKind;
  readonly message: string;
}

/** An error that is stored to be returned again. */
export interface StoredError {
  readonly code: string;
  readonly message: string | readonly string[];
  readonly fields?: Readonly<Record<string, unknown>> | undefined;
  readonly retryAfterSeconds?: number | undefined;
}

/** What a caller receives besides the message of a run. */
export interface RunReport {
  readonly warnings?: readonly ReplyWarning[] | undefined;
  /** Why there is no answer, or only a partial one. */
  readonly error?: StoredError | undefined;
  /** The interrupts that a paused run waits for. */
  readonly pending?: readonly PendingAnswer[] | undefined;
  readonly cost?: number | undefined;
  /** There is no answer because of an error that may not happen again: a repeated request starts the next attempt. */
  readonly isUnanswered?: boolean | undefined;
}

/** One attempt to execute a turn; times in milliseconds. */
export interface Run {
  readonly runId: string;
  readonly sessionId: string;
  readonly owner: string;
  readonly requestId: string;
  readonly turn: number;
  /** Where its messages are. */
  readonly branch: number;
  /** The question to answer again; undefined for the question of this turn. */
  readonly questionId?: string | undefined;
  /** Starts at 1; a paused or interrupted turn continues with the next. */
  readonly attempt: number;
  readonly status: RunStatus;
  /** The host that accepted or executes it; undefined if any host may take it. */
  readonly hostId: string | undefined;
  /** Set when the run was canceled from any host. */
  readonly cancelReason: CancelReason | undefined;
  readonly createdAt: number;
  /** When a host began to execute it. */
  readonly startedAt: number | undefined;
  readonly updatedAt: number;
  /** Number of the last stored frame, 0 for none. */
  readonly lastSeq: number;
  /** The id of the answer, also before it is stored. */
  readonly messageId: string;
  /** Of the request that started the turn. */
  readonly traceparent: string | undefined;
  readonly usage: TokenUsage;
  readonly error?: RunError;
  readonly report: RunReport;
}

export const hasEnded = <R extends Pick<Run, 'status'>>(
  run: R,
): run is R & { readonly status: (typeof ENDED)[number] } =>
  ENDED.some((status) => status === run.status);

/** Whether no frame will follow: the run has ended or waits for an answer. */
export const hasStopped = (run: Pick<Run, 'status'>): boolean =>
  run.status === 'paused' || hasEnded(run);

/** Whether its host crashed and another attempt continues it; a paused run that was answered is `continued` too. */
export const hasCrashed = ({ status, report }: Pick<Run, 'status' | 'report'>): boolean =>
  status === 'continued' && !report.pending;

/** What a `Run` is read from. Its request and its trace, which can be megabytes, are read apart. */
export const RUN_COLUMNS = [
  ...['id', 'session_id', 'owner', 'request_id', 'turn', 'branch', 'question_id'],
  ...['attempt', 'status', 'host_id', 'abort_requested', 'created_at', 'started_at'],
  ...['updated_at', 'last_seq', 'message_id', 'traceparent', 'input_tokens'],
  ...['output_tokens', 'cached_tokens', 'report', 'error_kind', 'error_message'],
] as const satisfies readonly (keyof RunRow)[];

export function toRun(row: Pick<RunRow, (typeof RUN_COLUMNS)[number]>): Run {
  const { error_kind: kind, error_message: message } = row;
  return {
    runId: row.id,
    sessionId: row.session_id,
    owner: row.owner,
    requestId: row.request_id,
    turn: row.turn,
    branch: row.branch,
    questionId: row.question_id ?? undefined,
    attempt: row.attempt,
    status: row.status,
    hostId: row.host_id ?? undefined,
    cancelReason: row.abort_requested ?? undefined,
    createdAt: row.created_at,
    startedAt: row.started_at ?? undefined,
    updatedAt: row.updated_at,
    lastSeq: row.last_seq,
    messageId: row.message_id ?? '',
    traceparent: row.traceparent ?? undefined,
    usage: { input: row.input_tokens, output: row.output_tokens, cached: row.cached_tokens },
    report: row.report === null ? {} : (JSON.parse(row.report) as RunReport),
    ...(kind !== null && { error: { kind, message: message ?? '' } }),
  };
}

export const insertRun = prepareQuery((tables, row: RunRow) =>
  tables.insertInto('runs').values(row),
);

/** The latest attempt of the turn that a run belongs to. */
export async function findLatestAttempt(
  tables: Kysely<Schema>,
  key: RunKey,
): Promise<RunRow | undefined> {
  const { rows } = await selectLatestAttempt(tables, key);
  return rows[0];
}

const selectLatestAttempt = prepareQuery((tables, { owner, runId }: RunKey) =>
  tables
    .selectFrom('runs as first')
    .innerJoin('runs as latest', (join) =>
      join
        .onRef('latest.owner', '=', 'first.owner')
        .onRef('latest.session_id', '=', 'first.session_id')
        .onRef('latest.turn', '=', 'first.turn'),
    )
    .selectAll('latest')
    .where('first.owner', '=', owner)
    .where('first.id', '=', runId)
    .orderBy('latest.attempt', 'desc')
    .limit(1),
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
    .returningAll(),
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
      .returningAll(),
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
