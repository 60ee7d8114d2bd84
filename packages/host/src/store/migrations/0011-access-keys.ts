import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

const COLUMNS = { name: 'text', caveats: 'text', turns_day: 'text', turns: 'integer' } as const;

/** Access keys are delegations with a name, caveats and a count of turns. Their programs may use unlisted sessions. */
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
  },
};
