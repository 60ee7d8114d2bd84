import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';

// biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
type Tables = Kysely<any>;

/** A row holds consecutive frames, one per line, and the number of the last one. Rows with one frame stay valid. */
export const frameChunks: Migration = {
  async up(tables: Tables) {
    await sql`update frames set data = event || ' ' || data`.execute(tables);
    await tables.schema.alterTable('frames').dropColumn('event').execute();
    await tables.schema.alterTable('frames').renameColumn('data', 'lines').execute();
  },
};
