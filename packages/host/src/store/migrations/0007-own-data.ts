import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

// biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
type Tables = Kysely<any>;

/** What a user used, imports, and indexes to find the rows of one user in tables with other keys. */
export const ownData: Migration = {
  async up(tables: Tables) {
    await tables.schema.alterTable('runs').addColumn('usage', 'text').execute();
    await createUsageDays(tables);
    await createImportJobs(tables);
    for (const table of ['revocations', 'single_use'])
      await tables.schema.createIndex(`${table}_by_owner`).on(table).column('owner').execute();
  },
};

/** The usage of sessions that were deleted. */
async function createUsageDays(tables: Tables): Promise<void> {
  await tables.schema
    .createTable('usage_days')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('day', 'text', (c) => c.notNull())
    .addColumn('session_id', 'text', (c) => c.notNull())
    .addColumn('model', 'text', (c) => c.notNull())
    .addColumn('turns', 'bigint', (c) => c.notNull())
    .addColumn('input_tokens', 'bigint', (c) => c.notNull())
    .addColumn('output_tokens', 'bigint', (c) => c.notNull())
    .addColumn('cached_tokens', 'bigint', (c) => c.notNull())
    .addColumn('cost', 'double precision')
    .addPrimaryKeyConstraint('usage_days_key', ['owner', 'day', 'session_id', 'model'])
    .execute();
}

async function createImportJobs(tables: Tables): Promise<void> {
  await tables.schema
    .createTable('import_jobs')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('id', 'text', (c) => c.notNull())
    .addColumn('progress', 'text', (c) => c.notNull())
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addColumn('updated_at', 'bigint', (c) => c.notNull())
    .addPrimaryKeyConstraint('import_jobs_key', ['owner', 'id'])
    .execute();
}
