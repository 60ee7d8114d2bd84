import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

// biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
type Tables = Kysely<any>;

/** How much text of a file is stored, which may be far more than its bytes; null if none is, or if an earlier version read it. */
export const textBytes: Migration = {
  async up(tables: Tables) {
    await tables.schema.alterTable('files').addColumn('text_bytes', 'bigint').execute();
    await tables.schema
      .createIndex('files_by_text_bytes')
      .on('files')
      .columns(['owner', 'text_bytes'])
      .execute();
  },
};
