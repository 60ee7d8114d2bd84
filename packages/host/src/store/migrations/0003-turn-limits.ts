import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';

/** What limits of turns are counted from, and what a run reports beside its message. */
export const turnLimits: Migration = {
  // biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
  async up(tables: Kysely<any>) {
    await tables.schema.alterTable('runs').addColumn('report', 'text').execute();
    await tables.schema
      .createIndex('runs_live_by_owner')
      .on('runs')
      .column('owner')
      .where(sql<boolean>`status in ('queued', 'running')`)
      .execute();
    await tables.schema
      .createTable('model_usage')
      .addColumn('day', 'text', (c) => c.primaryKey().notNull())
      .addColumn('tokens', 'bigint', (c) => c.notNull())
      .execute();
  },
};
