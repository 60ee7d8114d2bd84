import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

const COLUMNS = { name: 'text', caveats: 'text', turns_day: 'text', turns: 'integer' } as const;

/** Access keys are delegations with a name, caveats and a count of turns. Their programs may use unlisted sessions, and name sessions themselves. */
export const accessKeys: Migration = {
  // biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
  async up(tables: Kysely<any>) {
    // SQLite adds one column per statement.
    for (const [name, type] of Object.entries(COLUMNS))
      await tables.schema.alterTable('delegations').addColumn(name, type).execute();
    await tables.schema
      .alterTable('sessions')
      .addColumn('unlisted', 'integer', (c) => c.notNull().defaultTo(0))
      .execute();
    // Sessions are counted and listed without the unlisted ones, from the index alone.
    await tables.schema.dropIndex('sessions_by_update').execute();
    await tables.schema
      .createIndex('sessions_by_update')
      .on('sessions')
      .columns(['owner', 'last_updated_at', 'id', 'unlisted'])
      .execute();
    await tables.schema
      .createTable('client_threads')
      .addColumn('owner', 'text', (c) => c.notNull())
      .addColumn('surface', 'text', (c) => c.notNull())
      .addColumn('thread_id', 'text', (c) => c.notNull())
      .addColumn('session_id', 'text', (c) => c.notNull())
      .addPrimaryKeyConstraint('client_threads_key', ['owner', 'surface', 'thread_id'])
      .addForeignKeyConstraint(
        'client_threads_session',
        ['owner', 'session_id'],
        'sessions',
        ['owner', 'id'],
        (c) => c.onDelete('cascade'),
      )
      .execute();
    await tables.schema
      .createIndex('client_threads_of_session')
      .on('client_threads')
      .columns(['owner', 'session_id'])
      .execute();
  },
};
