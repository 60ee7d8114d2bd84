import { type ExpressionBuilder, sql } from 'kysely';
import type { StoreContext } from '../database.js';
import type { Schema } from '../schema/index.js';
import { ENDED, type RunRow } from '../schema/runs.js';
import { toUtcDay } from '../usage-store.js';

/** Two digits, so that any number of turns has few different values. */
const ROUNDED_MS = sql<number>`case
  when first_text_ms < 100 then first_text_ms
  when first_text_ms < 1000 then first_text_ms / 10 * 10
  when first_text_ms < 10000 then first_text_ms / 100 * 100
  else first_text_ms / 1000 * 1000 end`;

/** Turns with the same time to their first text. */
export interface SpeedCount {
  /** When the step began, in milliseconds. */
  readonly at: number;
  readonly ms: number;
  readonly count: number;
}

export interface TurnFilter {
  readonly state: 'open' | 'failed' | 'all';
  readonly user?: string | undefined;
  readonly cause?: string | undefined;
  readonly limit: number;
}

export interface UserSum {
  readonly user: string;
  readonly turns: number;
  readonly failed: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly cost: number | null;
  /** Milliseconds; undefined if all its sessions were deleted. */
  readonly lastAt: number | undefined;
}

export interface CauseCount {
  readonly cause: string;
  readonly count: number;
  readonly lastAt: number;
  readonly lastMessage: string | undefined;
}

const OPEN = ['queued', 'running', 'paused'] as const;
type Runs = ExpressionBuilder<Schema, 'runs'>;

/**
 * What operators see of the turns of all users: figures and causes, never texts. The conditions on status and time are
 * those of the index `runs_by_status`.
 */
export class TurnReports {
  constructor(private readonly context: StoreContext) {}

  /** Turns that have not ended, by status. */
  async countOpen(): Promise<Readonly<Record<(typeof OPEN)[number], number>>> {
    const rows = await this.context.database.tables
      .selectFrom('runs')
      .select(['status', (e) => e.fn.countAll<number>().as('count')])
      .where('status', 'in', OPEN)
      .groupBy('status')
      .execute();
    const counts = { queued: 0, running: 0, paused: 0 };
    for (const { status, count } of rows) counts[status as keyof typeof counts] = Number(count);
    return counts;
  }

  /** How many turns that ended since then took how long to their first text, by time in steps. */
  async countSpeeds(since: number, stepMs: number): Promise<readonly SpeedCount[]> {
    const step = sql<number>`${sql.ref('updated_at')} / ${sql.lit(stepMs)}`;
    const rows = await this.ended(since)
      .select((e) => [step.as('step'), ROUNDED_MS.as('ms'), e.fn.countAll<number>().as('count')])
      .where('first_text_ms', 'is not', null)
      .groupBy([step, ROUNDED_MS])
      .execute();
    return rows.map(({ step: at, ms, count }) => ({
      at: Number(at) * stepMs,
      ms: Number(ms),
      count: Number(count),
    }));
  }

  /** What users used since then, those with most tokens first; of deleted sessions, on whole days. */
  async sumByUser(since: number): Promise<readonly UserSum[]> {
    const sums = new Map<string, UserSum>();
    for (const sum of [...(await this.sumRuns(since)), ...(await this.sumDeleted(since))])
      sums.set(sum.user, addSums(sums.get(sum.user), sum));
    return [...sums.values()].sort((a, b) => countTokens(b) - countTokens(a) || b.turns - a.turns);
  }

  /** Why turns had no complete answer since then, most frequent first. */
  async countCauses(since: number): Promise<readonly CauseCount[]> {
    const rows = await this.ended(since)
      .select((e) => [
        e.ref('cause').$notNull().as('cause'),
        e.fn.countAll<number>().as('count'),
        e.fn.max('updated_at').as('lastAt'),
      ])
      .where('cause', 'is not', null)
      .groupBy('cause')
      .execute();
    const counts = rows.map(({ cause, count, lastAt }) => ({
      cause,
      count: Number(count),
      lastAt: Number(lastAt),
    }));
    const messages = await Promise.all(counts.map((each) => this.findMessage(each)));
    return counts
      .map((each, i) => ({ ...each, lastMessage: messages[i] }))
      .sort((a, b) => b.count - a.count);
  }

  /** Open turns first, then the latest. */
  async list({ state, user, cause, limit }: TurnFilter): Promise<readonly RunRow[]> {
    const select = (statuses: readonly RunRow['status'][]) => {
      let query = this.context.database.tables
        .selectFrom('runs')
        .selectAll()
        .where('status', 'in', statuses)
        .orderBy('updated_at', 'desc')
        .limit(limit);
      if (user !== undefined) query = query.where('owner', '=', user);
      if (cause !== undefined) query = query.where('cause', '=', cause);
      return state === 'failed' ? query.where(isFailure) : query;
    };
    const open = state === 'failed' ? [] : await select(OPEN).execute();
    if (state === 'open') return open;
    const ended = await select(ENDED).execute();
    return [...open, ...ended].slice(0, limit);
  }

  /** The background work of the host: imports, documents to read, texts to index. */
  async countJobs(): Promise<{ name: string; waiting: number; running: number; failed: number }[]> {
    const { tables } = this.context.database;
    const count = { failed: 0, running: 0 };
    const [imports, documents, texts] = await Promise.all([
      tables
        .selectFrom('import_jobs')
        .select('progress')
        .orderBy('updated_at', 'desc')
        .limit(1000)
        .execute(),
      tables
        .selectFrom('files')
        .select((e) => e.fn.countAll<number>().as('count'))
        .where('text_status', '=', sql.lit('pending'))
        .executeTakeFirstOrThrow(),
      tables
        .selectFrom('search_queue')
        .select((e) => e.fn.countAll<number>().as('count'))
        .executeTakeFirstOrThrow(),
    ]);
    const states = imports.map(({ progress }) => JSON.parse(progress).status as string);
    return [
      {
        name: 'Imports',
        waiting: 0,
        running: states.filter((state) => state === 'running').length,
        failed: states.filter((state) => state === 'failed').length,
      },
      { name: 'Documents to read', waiting: Number(documents.count), ...count },
      { name: 'Texts to index', waiting: Number(texts.count), ...count },
    ];
  }

  /** The run of any user. */
  find(runId: string): Promise<RunRow | undefined> {
    return this.context.database.tables
      .selectFrom('runs')
      .selectAll()
      .where('id', '=', runId)
      .executeTakeFirst();
  }

  private ended(since: number, statuses: readonly RunRow['status'][] = ENDED) {
    return this.context.database.tables
      .selectFrom('runs')
      .where('status', 'in', statuses)
      .where('updated_at', '>=', since);
  }

  /** A turn that waits for an answer has used tokens too. */
  private async sumRuns(since: number): Promise<UserSum[]> {
    const rows = await this.ended(since, [...ENDED, 'paused'])
      .select((e) => [
        'owner as user',
        e.fn.sum<number>(countIf(e, e('status', '!=', 'continued'))).as('turns'),
        e.fn.sum<number>(countIf(e, isFailure(e))).as('failed'),
        e.fn.sum<number>(this.countModelTokens('input')).as('inputTokens'),
        e.fn.sum<number>(this.countModelTokens('output')).as('outputTokens'),
        e.fn.sum<number | null>('cost').as('cost'),
        e.fn.max('updated_at').as('lastAt'),
      ])
      .groupBy('owner')
      .execute();
    return rows.map(toUserSum);
  }

  private async sumDeleted(since: number): Promise<UserSum[]> {
    const rows = await this.context.database.tables
      .selectFrom('usage_days')
      .select((e) => [
        'owner as user',
        // Entries without a model count each turn once.
        e.fn
          .sum<number>(e.case().when('model', '=', '').then(e.ref('turns')).else(0).end())
          .as('turns'),
        e.fn.sum<number>('input_tokens').as('inputTokens'),
        e.fn.sum<number>('output_tokens').as('outputTokens'),
        e.fn.sum<number | null>('cost').as('cost'),
      ])
      .where('day', '>=', toUtcDay(since))
      .groupBy('owner')
      .execute();
    return rows.map((row) => toUserSum({ ...row, failed: 0, lastAt: undefined }));
  }

  /** The tokens of all models that a run asked, with those of its title, as its cost counts them. */
  private countModelTokens(kind: 'input' | 'output') {
    const count = sql.lit(kind);
    const uses =
      this.context.database.engine === 'sqlite'
        ? sql`select sum(value ->> ${count}) from json_each(usage)`
        : sql`select sum((value ->> ${count})::bigint) from jsonb_array_elements(usage::jsonb)`;
    return sql<number>`coalesce((${uses}), ${sql.ref(`${kind}_tokens`)})`;
  }

  private async findMessage({ cause, lastAt }: Omit<CauseCount, 'lastMessage'>) {
    const row = await this.ended(lastAt)
      .select('error_message')
      .where('cause', '=', cause)
      .executeTakeFirst();
    return row?.error_message ?? undefined;
  }
}

const isFailure = (e: Runs) => e('cause', 'is not', null);

const countIf = (e: Runs, condition: ReturnType<typeof isFailure>) =>
  e.case().when(condition).then(1).else(0).end();

/** PostgreSQL returns sums as texts. */
const toUserSum = ({ user, cost, lastAt, ...counts }: UserSum): UserSum => ({
  user,
  turns: Number(counts.turns),
  failed: Number(counts.failed),
  inputTokens: Number(counts.inputTokens),
  outputTokens: Number(counts.outputTokens),
  cost: cost === null ? null : Number(cost),
  lastAt: lastAt === undefined ? undefined : Number(lastAt),
});

function addSums(a: UserSum | undefined, b: UserSum): UserSum {
  if (!a) return b;
  return {
    user: a.user,
    turns: a.turns + b.turns,
    failed: a.failed + b.failed,
    inputTokens: a.inputTokens + b.inputTokens,
    outputTokens: a.outputTokens + b.outputTokens,
    cost: a.cost === null && b.cost === null ? null : (a.cost ?? 0) + (b.cost ?? 0),
    lastAt: a.lastAt ?? b.lastAt,
  };
}

const countTokens = ({ inputTokens, outputTokens }: UserSum) => inputTokens + outputTokens;
