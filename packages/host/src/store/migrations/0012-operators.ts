import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

// biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
type Tables = Kysely<any>;

/** What operators see and do: how each run went, the hosts, operators, blocked users, and an audit log. */
export const operators: Migration = {
  async up(tables: Tables) {
    for (const [name, type] of RUN_COLUMNS)
      await tables.schema.alterTable('runs').addColumn(name, type).execute();
    await tables.schema
      .createTable('hosts')
      .addColumn('id', 'text', (c) => c.primaryKey())
      .addColumn('report', 'text', (c) => c.notNull())
      .addColumn('started_at', 'bigint', (c) => c.notNull())
      .addColumn('updated_at', 'bigint', (c) => c.notNull())
      .execute();
    await createListOfUsers(tables, 'operators');
    await createListOfUsers(tables, 'blocked_users');
    await createListOfUsers(tables, 'shared_arguments');
    await createAudit(tables);
  },
};

const RUN_COLUMNS = [
  ['traceparent', 'text'],
  ['first_text_ms', 'integer'],
  ['cause', 'text'],
  ['cost', 'double precision'],
  ['trace', 'text'],
] as const;

async function createListOfUsers(tables: Tables, name: string): Promise<void> {
  await tables.schema
    .createTable(name)
    .addColumn('owner', 'text', (c) => c.primaryKey())
    .addColumn('note', 'text')
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .execute();
}

async function createAudit(tables: Tables): Promise<void> {
  await tables.schema
    .createTable('operator_actions')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('id', 'text', (c) => c.notNull())
    .addColumn('action', 'text', (c) => c.notNull())
    .addColumn('target', 'text')
    .addColumn('note', 'text')
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addPrimaryKeyConstraint('operator_actions_key', ['owner', 'id'])
    .execute();
  await tables.schema
    .createIndex('operator_actions_by_id')
    .on('operator_actions')
    .column('id')
    .execute();
}

/** Operators also read what deleted sessions of all users have used since a day. */
export const usageByDay: Migration = {
  async up(tables: Tables) {
    await tables.schema
      .createIndex('usage_days_by_day')
      .on('usage_days')
      .columns(['day'])
      .execute();
  },
};
