import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

// biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
type Tables = Kysely<any>;

/** What the quota of a user is computed from at every upload. */
export const fileSizes: Migration = {
  async up(tables: Tables) {
    await tables.schema
      .createIndex('files_by_size')
      .on('files')
      .columns(['owner', 'status', 'updated_at', 'size', 'id'])
      .execute();
  },
};
