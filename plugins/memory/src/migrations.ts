import type { PluginMigrations } from '@sibyl/plugin-kit';
import { type Kysely, sql } from 'kysely';

/** The tables: facts, and what finds them by their words. */
export const migrations: PluginMigrations = {
  async '0001-facts'(tables, engine) {
    await tables.schema
      .createTable('memory_facts')
      // SQLite keeps no other row number through a VACUUM, and the words refer to it.
      .addColumn('seq', engine === 'postgres' ? 'bigserial' : 'integer', (column) =>
        column.primaryKey(),
      )
      .addColumn('id', 'text', (column) => column.notNull().unique())
      .addColumn('owner', 'text', (column) => column.notNull())
      .addColumn('text', 'text', (column) => column.notNull())
      .addColumn('created_at', 'bigint', (column) => column.notNull())
      .execute();
    await tables.schema
      .createIndex('memory_facts_by_owner')
      .on('memory_facts')
      .columns(['owner', 'created_at'])
      .execute();
    await (engine === 'postgres' ? indexWords(tables) : createWordTable(tables));
  },
};

// biome-ignore lint/suspicious/noExplicitAny: a migration sees the tables of its own time.
type Tables = Kysely<any>;

/** The `simple` configuration: users write in any language. */
async function indexWords(tables: Tables): Promise<void> {
  await sql`create index memory_facts_by_word on memory_facts using gin (to_tsvector('simple', text))`.execute(
    tables,
  );
}

async function createWordTable(tables: Tables): Promise<void> {
  await sql`create virtual table memory_words using fts5(text, content='memory_facts', content_rowid='seq', tokenize='unicode61 remove_diacritics 2')`.execute(
    tables,
  );
  await sql`create trigger memory_facts_added after insert on memory_facts begin
    insert into memory_words(rowid, text) values (new.seq, new.text);
  end`.execute(tables);
  await sql`create trigger memory_facts_removed after delete on memory_facts begin
    insert into memory_words(memory_words, rowid, text) values ('delete', old.seq, old.text);
  end`.execute(tables);
}
