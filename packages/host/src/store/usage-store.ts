import { type Kysely, sql } from 'kysely';
import type { SessionKey } from '../bus/event-bus.js';
import { prepareQuery, type StoreContext } from './database.js';
import type { Schema } from './schema/index.js';
import type { RunKey, TokenUsage } from './schema/runs.js';
import type { UsageDayRow } from './schema/usage.js';

const RUNS_PER_PAGE = 500;
/** The model of runs from before it was stored. */
const UNKNOWN_MODEL = 'unknown';

/** What one model used in one session on one day; an empty model counts the turns of all models. */
export type UsageEntry = Omit<UsageDayRow, 'owner'>;

interface ModelUse extends TokenUsage {
  readonly model: string;
}

/**
 * What users used. Each run stores its own usage when it ends, so a turn needs no further write; when a session is
 * deleted, the usage of its runs is added up by day.
 */
export class UsageStore {
  constructor(private readonly context: StoreContext) {}

  /** The usage of a user since a time in milliseconds, added up by day, session and model. */
  async read(owner: string, since: number): Promise<readonly UsageEntry[]> {
    const { tables } = this.context.database;
    const sums = new UsageSums();
    const deleted = await tables
      .selectFrom('usage_days')
      .select([...USAGE_COLUMNS])
      .where('owner', '=', owner)
      .where('day', '>=', toUtcDay(since))
      .execute();
    for (const entry of deleted) sums.add(entry);
    for (let after = toFirstId(since); ; ) {
      const runs = await selectRuns(tables, owner)
        .where('id', '>', after)
        .where('created_at', '>=', since)
        .orderBy('id')
        .limit(RUNS_PER_PAGE)
        .execute();
      for (const run of runs) sums.addRun(run);
      if (runs.length < RUNS_PER_PAGE) return sums.entries;
      after = runs.at(-1)?.id ?? after;
    }
  }

  /** Replaces the usage of a run that has ended: its title was generated afterwards. */
  async replace({ owner, runId }: RunKey, models: readonly ModelUse[]): Promise<void> {
    await this.context.database.write((tables) =>
      tables
        .updateTable('runs')
        .set({ usage: JSON.stringify(models), cost: sumCosts(models) })
        .where('owner', '=', owner)
        .where('id', '=', runId)
        .execute(),
    );
  }

  /** Whether a turn of a user ended well before this time, in milliseconds. */
  async hasFinishedTurn(owner: string, before: number): Promise<boolean> {
    const { tables } = this.context.database;
    const run = await tables
      .selectFrom('runs')
      .select('id')
      .where('owner', '=', owner)
      .where('id', '<', toFirstId(before))
      .where('status', '=', 'finished')
      .limit(1)
      .executeTakeFirst();
    if (run) return true;
    const deleted = await tables
      .selectFrom('usage_days')
      .select('day')
      .where('owner', '=', owner)
      .where('day', '<', toUtcDay(before))
      .limit(1)
      .executeTakeFirst();
    return deleted !== undefined;
  }

  /** The titles of sessions that exist. */
  async readTitles(owner: string, ids: readonly string[]): Promise<ReadonlyMap<string, string>> {
    if (ids.length === 0) return new Map();
    const rows = await this.context.database.tables
      .selectFrom('sessions')
      .select(['id', 'title'])
      .where('owner', '=', owner)
      .where('id', 'in', ids)
      .execute();
    return new Map(rows.map(({ id, title }) => [id, title]));
  }
}

/** Keeps the usage of a session that is about to be deleted, inside a unit of work. */
export async function keepUsage(
  tables: Kysely<Schema>,
  { owner, sessionId }: SessionKey,
): Promise<void> {
  const runs = await selectRuns(tables, owner)
    .where('session_id', '=', sessionId)
    .orderBy('id')
    .execute();
  const sums = new UsageSums();
  for (const run of runs) sums.addRun(run);
  for (const entry of sums.entries)
    await tables
      .insertInto('usage_days')
      .values({ owner, ...entry })
      .onConflict((c) =>
        c.columns(['owner', 'day', 'session_id', 'model']).doUpdateSet((e) => ({
          turns: e('usage_days.turns', '+', e.ref('excluded.turns')),
          input_tokens: e('usage_days.input_tokens', '+', e.ref('excluded.input_tokens')),
          output_tokens: e('usage_days.output_tokens', '+', e.ref('excluded.output_tokens')),
          cached_tokens: e('usage_days.cached_tokens', '+', e.ref('excluded.cached_tokens')),
          cost: sql<number | null>`case when usage_days.cost is null then excluded.cost
            else usage_days.cost + coalesce(excluded.cost, 0) end`,
        })),
      )
      .execute();
}

const USAGE_COLUMNS = [
  'day',
  'session_id',
  'model',
  'turns',
  'input_tokens',
  'output_tokens',
  'cached_tokens',
  'cost',
] as const satisfies readonly (keyof UsageDayRow)[];

const selectRuns = (tables: Kysely<Schema>, owner: string) =>
  tables
    .selectFrom('runs')
    .select([
      'id',
      'session_id',
      'turn',
      'status',
      'created_at',
      'input_tokens',
      'output_tokens',
      'cached_tokens',
      'usage',
    ])
    .where('owner', '=', owner);

type RunUsage = Awaited<ReturnType<ReturnType<typeof selectRuns>['execute']>>[number];

/** Adds up usage by day, session and model. */
class UsageSums {
  private readonly sums = new Map<string, UsageEntry>();
  /** The models of turns whose last attempt was not added yet: it may call none. */
  private readonly continued = new Map<string, ReadonlySet<string>>();

  get entries(): readonly UsageEntry[] {
    return [...this.sums.values()];
  }

  add(entry: UsageEntry): void {
    const key = `${entry.day} ${entry.session_id} ${entry.model}`;
    const known = this.sums.get(key);
    this.sums.set(key, known ? addEntries(known, entry) : entry);
  }

  /** The attempts of a turn come in their order; the last one counts the turn. */
  addRun(run: RunUsage): void {
    const place = { day: toUtcDay(run.created_at), session_id: run.session_id };
    const turn = `${run.session_id} ${run.turn}`;
    const uses = readModels(run);
    for (const use of uses) this.add({ ...place, ...toColumns(use), turns: 0 });
    const models = new Set([
      ...(this.continued.get(turn) ?? []),
      ...uses.map(({ model }) => model),
    ]);
    if (run.status === 'continued') return void this.continued.set(turn, models);
    this.continued.delete(turn);
    for (const model of ['', ...models])
      this.add({ ...place, ...toColumns({ model, input: 0, output: 0, cached: 0 }), turns: 1 });
  }
}

function readModels(run: RunUsage): readonly ModelUse[] {
  if (run.usage !== null) return JSON.parse(run.usage);
  const { input_tokens: input, output_tokens: output, cached_tokens: cached } = run;
  return input + output > 0 ? [{ model: UNKNOWN_MODEL, input, output, cached }] : [];
}

const toColumns = ({ model, input, output, cached, cost }: ModelUse) => ({
  model,
  input_tokens: input,
  output_tokens: output,
  cached_tokens: cached,
  cost: cost ?? null,
});

export function addEntries<Entry extends Omit<UsageEntry, 'day' | 'session_id' | 'model'>>(
  a: Entry,
  b: Omit<UsageEntry, 'day' | 'session_id' | 'model'>,
): Entry {
  return {
    ...a,
    turns: a.turns + b.turns,
    input_tokens: a.input_tokens + b.input_tokens,
    output_tokens: a.output_tokens + b.output_tokens,
    cached_tokens: a.cached_tokens + b.cached_tokens,
    cost: a.cost === null && b.cost === null ? null : (a.cost ?? 0) + (b.cost ?? 0),
  };
}

function sumCosts(models: readonly ModelUse[]): number | null {
  const costs = models.flatMap(({ cost }) => cost ?? []);
  return costs.length > 0 ? costs.reduce((sum, cost) => sum + cost, 0) : null;
}

/** Before every id of this time: ids begin with the time when they were created. */
function toFirstId(time: number): string {
  const hex = Math.max(0, time).toString(16).padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8)}`;
}

const KEPT_DAYS = 31;
const DAY_MS = 24 * 60 * 60 * 1000;

/** The tokens that all hosts on this database have spent on models, per day in UTC. */
export class ModelUsageStore {
  private readonly context: StoreContext;

  constructor(context: StoreContext) {
    this.context = context;
  }

  /** Adds tokens to a day and returns the day's total. */
  add(day: string, tokens: number): Promise<number> {
    return this.context.database.write(async (tables) => {
      const { rows } = await addTokens(tables, { day, tokens });
      return rows[0]?.tokens ?? tokens;
    });
  }

  async total(day: string): Promise<number> {
    const { rows } = await selectTokens(this.context.database.tables, { day });
    return rows[0]?.tokens ?? 0;
  }

  /** Deletes days that are more than a month ago. */
  async prune(): Promise<void> {
    const { database, clock } = this.context;
    const first = toUtcDay(clock() - KEPT_DAYS * DAY_MS);
    await database.write((tables) =>
      tables.deleteFrom('model_usage').where('day', '<', first).execute(),
    );
  }
}

/** The day in UTC of a time in milliseconds, such as 2026-01-31. */
export const toUtcDay = (time: number): string => new Date(time).toISOString().slice(0, 10);

const addTokens = prepareQuery((tables, { day, tokens }: { day: string; tokens: number }) =>
  tables
    .insertInto('model_usage')
    .values({ day, tokens })
    .onConflict((c) =>
      c.column('day').doUpdateSet((e) => ({
        tokens: e('model_usage.tokens', '+', e.ref('excluded.tokens')),
      })),
    )
    .returning('tokens'),
);

const selectTokens = prepareQuery((tables, { day }: { day: string }) =>
  tables.selectFrom('model_usage').select('tokens').where('day', '=', day),
);
