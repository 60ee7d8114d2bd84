import { type Kysely, PostgresAdapter, sql } from 'kysely';
import type { Migration } from 'kysely/migration';

// biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
type Tables = Kysely<any>;

/** The files of users: their bytes in chunks, and their text in passages with a full-text index. */
export const files: Migration = {
  async up(tables: Tables) {
    await createFiles(tables);
    await createChunks(tables);
    const isPostgres = tables.getExecutor().adapter instanceof PostgresAdapter;
    await createPassages(tables, isPostgres);
    await (isPostgres ? indexWords(tables) : createWordTable(tables));
  },
};

async function createFiles(tables: Tables): Promise<void> {
  await tables.schema
    .createTable('files')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('id', 'text', (c) => c.notNull())
    .addColumn('name', 'text', (c) => c.notNull())
    .addColumn('media_type', 'text', (c) => c.notNull())
    .addColumn('size', 'bigint', (c) => c.notNull())
    .addColumn('hash', 'text')
    .addColumn('status', 'text', (c) => c.notNull())
    .addColumn('storage', 'text', (c) => c.notNull())
    .addColumn('chunk_bytes', 'integer', (c) => c.notNull())
    .addColumn('text_status', 'text', (c) => c.notNull())
    .addColumn('text_error', 'text')
    .addColumn('text_unit', 'text')
    .addColumn('text_count', 'integer')
    .addColumn('text_complete', 'integer')
    .addColumn('attempts', 'integer', (c) => c.notNull().defaultTo(0))
    .addColumn('lease_until', 'bigint')
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addColumn('updated_at', 'bigint', (c) => c.notNull())
    .addPrimaryKeyConstraint('files_key', ['owner', 'id'])
    .execute();
  await tables.schema
    .createIndex('files_by_hash')
    .unique()
    .on('files')
    .columns(['owner', 'hash'])
    .execute();
  await tables.schema
    .createIndex('files_to_read')
    .on('files')
    .columns(['owner', 'id'])
    .where(sql<boolean>`text_status = 'pending'`)
    .execute();
  await tables.schema
    .createIndex('files_unfinished')
    .on('files')
    .column('updated_at')
    .where(sql<boolean>`status <> 'ready'`)
    .execute();
}

async function createChunks(tables: Tables): Promise<void> {
  await tables.schema
    .createTable('file_chunks')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('file_id', 'text', (c) => c.notNull())
    .addColumn('n', 'integer', (c) => c.notNull())
    // SQLite keeps bytes as they are in a column of any type.
    .addColumn('data', 'bytea', (c) => c.notNull())
    .addPrimaryKeyConstraint('file_chunks_key', ['owner', 'file_id', 'n'])
    .execute();
}

async function createPassages(tables: Tables, isPostgres: boolean): Promise<void> {
  const columns = tables.schema
    .createTable('file_passages')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('file_id', 'text', (c) => c.notNull())
    .addColumn('n', 'integer', (c) => c.notNull())
    .addColumn('place', 'integer', (c) => c.notNull())
    .addColumn('position', 'text', (c) => c.notNull())
    .addColumn('scope', 'text', (c) => c.notNull())
    .addColumn('text', 'text', (c) => c.notNull());
  // The full-text index refers to `seq`, since SQLite renumbers other row ids in a VACUUM.
  await (isPostgres
    ? columns.addPrimaryKeyConstraint('file_passages_key', ['owner', 'file_id', 'n'])
    : columns
        .addColumn('seq', 'integer', (c) => c.primaryKey())
        .addUniqueConstraint('file_passages_key', ['owner', 'file_id', 'n'])
  ).execute();
  await tables.schema
    .createIndex('file_passages_by_place')
    .on('file_passages')
    .columns(['owner', 'file_id', 'place', 'n'])
    .execute();
}

/** Words are letters and digits on both engines: PostgreSQL would take `example.com` for one word. */
async function indexWords(tables: Tables): Promise<void> {
  await sql`alter table file_passages add column words tsvector generated always as (
    setweight(to_tsvector('simple', scope), 'A') ||
    setweight(to_tsvector('simple', regexp_replace(text, '[[:punct:][:space:]]+', ' ', 'g')), 'D')
  ) stored`.execute(tables);
  await sql`create index file_passages_by_word on file_passages using gin (words)`.execute(tables);
}

/** The host that receives an upload; null once it has ended. */
export const uploadHosts: Migration = {
  async up(tables: Tables) {
    await tables.schema.alterTable('files').addColumn('host_id', 'text').execute();
  },
};

async function createWordTable(tables: Tables): Promise<void> {
  await sql`create virtual table file_words using fts5(scope, text, content='file_passages', content_rowid='seq', tokenize='unicode61 remove_diacritics 0')`.execute(
    tables,
  );
  await sql`insert into file_words (file_words, rank) values ('secure-delete', 1)`.execute(tables);
  await sql`create trigger file_passages_added after insert on file_passages begin
    insert into file_words(rowid, scope, text) values (new.seq, new.scope, new.text);
  end`.execute(tables);
  await sql`create trigger file_passages_removed after delete on file_passages begin
    insert into file_words(file_words, rowid, scope, text) values ('delete', old.seq, old.scope, old.text);
  end`.execute(tables);
}

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
