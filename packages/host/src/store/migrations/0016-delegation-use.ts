import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

// biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
type Tables = Kysely<any>;

/** The plugin that last used a delegation. */
export const delegationUse: Migration = {
  async up(tables: Tables) {
    await tables.schema.alterTable('delegations').addColumn('last_used_by', 'text').execute();
  },
};
