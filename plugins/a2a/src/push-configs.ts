import type { DatabaseEngine, PluginDatabase, PluginMigrations } from '@sibyl/plugin-kit';
import { OracleError } from '@sibyl/protocol';
import { type Kysely, sql } from 'kysely';

export interface TaskRef {
  readonly owner: string;
  readonly taskId: string;
}

export interface ConfigKey extends TaskRef {
  readonly id: string;
}

/** Where to post a task. */
export interface ConfigRow {
  owner: string;
  task_id: string;
  id: string;
  session_id: string;
  context_id: string;
  message_id: string;
  url: string;
  /** The run and the status that the receiver knows. */
  delivered: string | null;
  /** Of the current notification. */
  attempts: number;
  /** When to look at the task again; null once there is nothing to expect. */
  due_at: number | null;
  created_at: number;
}

interface Tables {
  a2a_push_configs: ConfigRow;
}

export const migrations: PluginMigrations = {
  '0001-push-configs': async (tables) => {
    await tables.schema
      .createTable('a2a_push_configs')
      .addColumn('owner', 'text', (c) => c.notNull())
      .addColumn('task_id', 'text', (c) => c.notNull())
      .addColumn('id', 'text', (c) => c.notNull())
      .addColumn('session_id', 'text', (c) => c.notNull())
      .addColumn('context_id', 'text', (c) => c.notNull())
      .addColumn('message_id', 'text', (c) => c.notNull())
      .addColumn('url', 'text', (c) => c.notNull())
      .addColumn('delivered', 'text')
      .addColumn('attempts', 'integer', (c) => c.notNull())
      .addColumn('due_at', 'bigint')
      .addColumn('created_at', 'bigint', (c) => c.notNull())
      .addPrimaryKeyConstraint('a2a_push_configs_key', ['owner', 'task_id', 'id'])
      .execute();
    await tables.schema
      .createIndex('a2a_push_configs_due')
      .on('a2a_push_configs')
      .column('due_at')
      .execute();
  },
};

const BATCH = 20;
const MAX_PER_TASK = 10;
const MAX_PER_USER = 1_000;
const KEPT_MS = 30 * 86_400_000;
const MINUTE_MS = 60_000;

/** Where the tasks of each user are posted. */
export class PushConfigStore {
  constructor(private readonly database: PluginDatabase<Tables>) {}

  /** Adds or replaces a config, within the limits of the task and of the user. */
  add(
    config: Pick<
      ConfigRow,
      'owner' | 'task_id' | 'id' | 'session_id' | 'context_id' | 'message_id' | 'url'
    >,
  ): Promise<void> {
    return this.database.write(async (tables) => {
      const now = await readTime(tables, this.database.engine);
      const { owner, task_id, id } = config;
      await tables
        .deleteFrom('a2a_push_configs')
        .where('owner', '=', owner)
        .where((e) => e.or([e('created_at', '<', now - KEPT_MS), e.and({ task_id, id })]))
        .execute();
      const others = await tables
        .selectFrom('a2a_push_configs')
        .select('task_id')
        .where('owner', '=', owner)
        .execute();
      const ofTask = others.filter((other) => other.task_id === task_id);
      if (ofTask.length >= MAX_PER_TASK || others.length >= MAX_PER_USER)
        throw new OracleError('bad_request', { message: TOO_MANY });
      const state = { delivered: null, attempts: 0, due_at: now, created_at: now };
      await tables
        .insertInto('a2a_push_configs')
        .values({ ...config, ...state })
        .execute();
    });
  }

  list({ owner, taskId }: TaskRef): Promise<readonly ConfigRow[]> {
    return this.database.tables
      .selectFrom('a2a_push_configs')
      .selectAll()
      .where('owner', '=', owner)
      .where('task_id', '=', taskId)
      .orderBy('id')
      .execute();
  }

  async remove({ owner, taskId, id }: ConfigKey): Promise<void> {
    await this.database.write((tables) =>
      tables
        .deleteFrom('a2a_push_configs')
        .where('owner', '=', owner)
        .where('task_id', '=', taskId)
        .where('id', '=', id)
        .execute(),
    );
  }

  /** Makes the configs of a task due that still expect something. */
  async wake({ owner, taskId }: TaskRef): Promise<void> {
    const configs = await this.list({ owner, taskId });
    for (const row of configs) if (row.due_at !== null) await this.update(row, {}, 0);
  }

  /** Takes configs to look at now; `pauseMs` later any host may do so. */
  async takeDue(pauseMs: number): Promise<readonly ConfigRow[]> {
    const { tables, engine } = this.database;
    // Most of the time nothing is due, and no transaction is needed to know that.
    const now = await readTime(tables, engine);
    const due = (within: Kysely<Tables>) =>
      within
        .selectFrom('a2a_push_configs')
        .selectAll()
        .where('due_at', '<=', now)
        .orderBy('due_at')
        .limit(BATCH);
    if (!(await due(tables).executeTakeFirst())) return [];
    return this.database.write(async (locked) => {
      const query = due(locked);
      const rows = await (engine === 'postgres' ? query.forUpdate().skipLocked() : query).execute();
      for (const row of rows) await whereRow(locked, row, { due_at: now + pauseMs });
      return rows;
    });
  }

  /** Nothing new: the longer ago the task began, the later it is looked at again. */
  async postpone(row: ConfigRow): Promise<void> {
    const now = await readTime(this.database.tables, this.database.engine);
    const age = now - row.created_at;
    const pause = age < MINUTE_MS ? 1_000 : age < 60 * MINUTE_MS ? 5_000 : MINUTE_MS;
    await this.update(row, { attempts: 0 }, pause);
  }

  /** The receiver knows the state of the task, or does not want to. */
  async recordDelivery(row: ConfigRow, delivered: string, isFinal: boolean): Promise<void> {
    if (isFinal) await this.update(row, { delivered, attempts: 0 }, undefined);
    else await this.update(row, { delivered, attempts: 0 }, 1_000);
  }

  retry(row: ConfigRow, attempts: number, pauseMs: number): Promise<void> {
    return this.update(row, { attempts }, pauseMs);
  }

  /** `dueInMs` undefined: never again. */
  private async update(
    row: ConfigRow,
    values: Partial<ConfigRow>,
    dueInMs: number | undefined,
  ): Promise<void> {
    await this.database.write(async (tables) => {
      const now = await readTime(tables, this.database.engine);
      const due_at = dueInMs === undefined ? null : now + dueInMs;
      await whereRow(tables, row, { ...values, due_at });
    });
  }
}

const TOO_MANY = `A task has at most ${MAX_PER_TASK} push notification configs, and a user ${MAX_PER_USER}; delete some`;

export const toConfigKey = ({ owner, task_id: taskId, id }: ConfigRow): ConfigKey => ({
  owner,
  taskId,
  id,
});

const whereRow = (tables: Kysely<Tables>, row: ConfigRow, values: Partial<ConfigRow>) =>
  tables
    .updateTable('a2a_push_configs')
    .set(values)
    .where('owner', '=', row.owner)
    .where('task_id', '=', row.task_id)
    .where('id', '=', row.id)
    .execute();

/** The time of the database, which all hosts share; with SQLite there is one host. */
async function readTime(tables: Kysely<Tables>, engine: DatabaseEngine): Promise<number> {
  if (engine === 'sqlite') return Date.now();
  const { rows } = await sql<{
    now: string;
  }>`select floor(extract(epoch from clock_timestamp()) * 1000) as now`.execute(tables);
  return Number(rows[0]?.now);
}
