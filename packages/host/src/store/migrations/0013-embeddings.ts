import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';

// biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
type Tables = Kysely<any>;

/** The meaning of the passages of files, apart from their texts: a search reads all vectors of a user. */
export const embeddings: Migration = {
  async up(tables: Tables) {
    await tables.schema
      .createTable('file_vectors')
      .addColumn('owner', 'text', (c) => c.notNull())
      .addColumn('file_id', 'text', (c) => c.notNull())
      .addColumn('n', 'integer', (c) => c.notNull())
      .addColumn('vector', 'bytea', (c) => c.notNull())
      .addPrimaryKeyConstraint('file_vectors_key', ['owner', 'file_id', 'n'])
      .execute();
    await tables.schema.alterTable('files').addColumn('vector_model', 'text').execute();
    await tables.schema
      .createIndex('files_to_embed')
      .on('files')
      .columns(['owner', 'id'])
      .where(sql<boolean>`text_status = 'ready' and vector_model is null`)
      .execute();
  },
};

/** The model of each vector, so that a file that is embedded in part continues where it stopped. */
export const vectorModels: Migration = {
  async up(tables: Tables) {
    await tables.schema.alterTable('file_vectors').addColumn('model', 'text').execute();
  },
};
