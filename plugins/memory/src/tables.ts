import { createHash } from 'node:crypto';
import type { PluginMigrations } from '@sibyl/plugin-kit';
import { readTerms } from '@sibyl/plugin-kit/search';
import { type Generated, type Kysely, type RawBuilder, sql } from 'kysely';

export interface FactRow {
  seq: Generated<number>;
  id: string;
  owner: string;
  /** The person that it is about, if it is not the owner; empty if it is. */
  sub_user: Generated<string>;
  text: string;
  created_at: number;
  updated_at: number | null;
  /** Where it was learned; null if the user wrote it. */
  session_id: string | null;
  /** Of facts of an earlier version: a word that represented the owner in the full-text index of SQLite. */
  scope?: string | null;
  /** The model of its vector; null if it has none of its current text. */
  vector_model: string | null;
  /** Facts with the same one are the same; null if it is `lower(text)`. */
  normalized_text: string | null;
  /** The words by which it is found; null if an earlier version stored it. */
  words: string | null;
}

/** Whose facts: those about one person, about the owner (an empty text), or all that the owner has. */
export interface About {
  readonly owner: string;
  readonly subUser?: string | undefined;
}

export interface MemoryTables {
  memory_facts: FactRow;
  memory_vectors: FactVectorRow;
}

/** The meaning of a fact. */
interface FactVectorRow {
  owner: string;
  id: string;
  vector: Uint8Array;
}

/** A word for an owner, as the full-text index of earlier versions has it. */
export const toScope = (owner: string): string =>
  createHash('sha256').update(owner).digest('hex').slice(0, 24);

/** Computed here, since SQLite changes only ASCII letters to lower case. */
export const normalizeText = (text: string): string => text.normalize('NFC').toLowerCase();

/** Without accents, and in pairs of characters where words have no spaces between them, on both engines. */
export const toWords = (text: string): string =>
  [...readTerms(text)].map((term) => term.text).join(' ');

/** The facts and their full-text index. */
export const migrations: PluginMigrations = {
  async '0001-facts'(tables, engine) {
    await tables.schema
      .createTable('memory_facts')
      // The full-text index refers to it, and SQLite renumbers other row ids in a VACUUM.
      .addColumn('seq', engine === 'postgres' ? 'bigserial' : 'integer', (column) =>
        column.primaryKey(),
      )
      .addColumn('id', 'text', (column) => column.notNull().unique())
      .addColumn('owner', 'text', (column) => column.notNull())
      .addColumn('sub_user', 'text', (column) => column.notNull().defaultTo(''))
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
  /** Keys begin with the owner, so that the table can be distributed by owner; SQLite has one server anyway. */
  async '0002-owner-first'(tables, engine) {
    if (engine !== 'postgres') return;
    await sql`alter table memory_facts drop constraint memory_facts_pkey,
      drop constraint memory_facts_id_key, add primary key (owner, id)`.execute(tables);
  },
  /** Where a fact was learned, when it was changed, and whose it is in the full-text index. */
  async '0003-learned'(tables, engine) {
    for (const [name, type] of [
      ['updated_at', 'bigint'],
      ['session_id', 'text'],
      ['scope', 'text'],
    ] as const)
      await tables.schema.alterTable('memory_facts').addColumn(name, type).execute();
    if (engine === 'postgres') return;
    await setScopes(tables);
    await rebuildWordTable(tables, 'text');
  },
  /** The meaning of facts, and which facts still need a vector. */
  async '0004-vectors'(tables) {
    await tables.schema.alterTable('memory_facts').addColumn('vector_model', 'text').execute();
    await tables.schema
      .createIndex('memory_facts_to_embed')
      .on('memory_facts')
      .columns(['owner', 'id'])
      .where(sql<boolean>`vector_model is null`)
      .execute();
    await tables.schema
      .createTable('memory_vectors')
      .addColumn('owner', 'text', (column) => column.notNull())
      .addColumn('id', 'text', (column) => column.notNull())
      // SQLite keeps bytes as they are in a column of any type.
      .addColumn('vector', 'bytea', (column) => column.notNull())
      .addPrimaryKeyConstraint('memory_vectors_key', ['owner', 'id'])
      .execute();
  },
  /** Two users may have facts with the same id, such as those of one export, on SQLite too. */
  async '0005-ids-per-owner'(tables, engine) {
    if (engine === 'sqlite') await rebuildFacts(tables);
  },
  /** The text by which a fact is recognized. */
  async '0006-normalized-text'(tables) {
    await tables.schema.alterTable('memory_facts').addColumn('normalized_text', 'text').execute();
    await updateFacts(tables, isNotAscii, (text) => ({ normalized_text: normalizeText(text) }));
  },
  /** The words of a fact in any language. */
  async '0007-words'(tables, engine) {
    await tables.schema.alterTable('memory_facts').addColumn('words', 'text').execute();
    await updateFacts(tables, sql<boolean>`true`, (text) => ({ words: toWords(text) }));
    await (engine === 'postgres' ? indexTerms(tables) : rebuildWordTable(tables, 'words'));
  },
  /** On SQLite, a search reads the facts of its user instead. */
  async '0008-no-word-table'(tables, engine) {
    if (engine === 'sqlite') await dropWordTable(tables);
  },
};

// biome-ignore lint/suspicious/noExplicitAny: a migration sees the tables of its time.
type AnyTables = Kysely<any>;

/** The `simple` configuration: users write in any language. */
async function indexWords(tables: AnyTables): Promise<void> {
  await sql`create index memory_facts_by_word on memory_facts using gin (to_tsvector('simple', text))`.execute(
    tables,
  );
}

/** The words as PostgreSQL searches them, as they are. */
export const TERMS = sql`array_to_tsvector(string_to_array(words, ' '))`;

async function indexTerms(tables: AnyTables): Promise<void> {
  await sql`create index memory_facts_by_term on memory_facts using gin (${TERMS})`.execute(tables);
}

async function createWordTable(tables: AnyTables): Promise<void> {
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

async function setScopes(tables: AnyTables): Promise<void> {
  const owners = await tables.selectFrom('memory_facts').select('owner').distinct().execute();
  for (const { owner } of owners)
    await tables
      .updateTable('memory_facts')
      .set({ scope: toScope(owner) })
      .where('owner', '=', owner)
      .execute();
}

async function rebuildWordTable(tables: AnyTables, source: 'text' | 'words'): Promise<void> {
  await dropWordTable(tables);
  // Words are separated by spaces alone.
  const tokenize = sql.lit(source === 'text' ? 'unicode61 remove_diacritics 2' : 'ascii');
  await sql`create virtual table memory_words using fts5(scope, ${sql.ref(source)}, content='memory_facts', content_rowid='seq', tokenize=${tokenize})`.execute(
    tables,
  );
  // Deleted words disappear from the index at once, not when it is reorganized.
  await sql`insert into memory_words(memory_words, rank) values ('secure-delete', 1)`.execute(
    tables,
  );
  await sql`insert into memory_words(memory_words) values ('rebuild')`.execute(tables);
  await createWordTriggers(tables, source);
}

async function dropWordTable(tables: AnyTables): Promise<void> {
  for (const trigger of ['added', 'removed', 'changed'])
    await sql`drop trigger if exists ${sql.table(`memory_facts_${trigger}`)}`.execute(tables);
  await sql`drop table memory_words`.execute(tables);
}

async function createWordTriggers(tables: AnyTables, source: 'text' | 'words'): Promise<void> {
  const [column, added, removed] = ['', 'new.', 'old.'].map((row) => sql.raw(row + source));
  const add = sql`insert into memory_words(rowid, scope, ${column}) values (new.seq, new.scope, ${added});`;
  const remove = sql`insert into memory_words(memory_words, rowid, scope, ${column}) values ('delete', old.seq, old.scope, ${removed});`;
  await sql`create trigger memory_facts_added after insert on memory_facts begin ${add} end`.execute(
    tables,
  );
  await sql`create trigger memory_facts_removed after delete on memory_facts begin ${remove} end`.execute(
    tables,
  );
  await sql`create trigger memory_facts_changed after update of ${column} on memory_facts begin ${remove} ${add} end`.execute(
    tables,
  );
}

/** The rows keep their `seq`, so the full-text index still fits. */
async function rebuildFacts(tables: AnyTables): Promise<void> {
  await tables.schema
    .createTable('memory_facts_rebuilt')
    .addColumn('seq', 'integer', (column) => column.primaryKey())
    .addColumn('id', 'text', (column) => column.notNull())
    .addColumn('owner', 'text', (column) => column.notNull())
    .addColumn('sub_user', 'text', (column) => column.notNull().defaultTo(''))
    .addColumn('text', 'text', (column) => column.notNull())
    .addColumn('created_at', 'bigint', (column) => column.notNull())
    .addColumn('updated_at', 'bigint')
    .addColumn('session_id', 'text')
    .addColumn('scope', 'text')
    .addColumn('vector_model', 'text')
    .addUniqueConstraint('memory_facts_key', ['owner', 'id'])
    .execute();
  await sql`insert into memory_facts_rebuilt
    select seq, id, owner, sub_user, text, created_at, updated_at, session_id, scope, vector_model
    from memory_facts`.execute(tables);
  await tables.schema.dropTable('memory_facts').execute();
  await tables.schema.alterTable('memory_facts_rebuilt').renameTo('memory_facts').execute();
  await tables.schema
    .createIndex('memory_facts_by_owner')
    .on('memory_facts')
    .columns(['owner', 'created_at'])
    .execute();
  await tables.schema
    .createIndex('memory_facts_to_embed')
    .on('memory_facts')
    .columns(['owner', 'id'])
    .where(sql<boolean>`vector_model is null`)
    .execute();
  await createWordTriggers(tables, 'text');
}

const FACTS_PER_READ = 500;

/** For the others, `lower(text)` is the same as their normalized text. */
const isNotAscii = sql<boolean>`octet_length(text) > length(text)`;

async function updateFacts(
  tables: AnyTables,
  condition: RawBuilder<boolean>,
  change: (text: string) => Readonly<Record<string, string>>,
): Promise<void> {
  let last = { owner: '', id: '' };
  for (;;) {
    const facts = await tables
      .selectFrom('memory_facts')
      .select(['owner', 'id', 'text'])
      .where((e) => e(e.refTuple('owner', 'id'), '>', e.tuple(last.owner, last.id)))
      .where(condition)
      .orderBy('owner')
      .orderBy('id')
      .limit(FACTS_PER_READ)
      .execute();
    for (const { owner, id, text } of facts)
      await tables
        .updateTable('memory_facts')
        .set(change(text))
        .where('owner', '=', owner)
        .where('id', '=', id)
        .execute();
    const end = facts.at(-1);
    if (!end) return;
    last = { owner: end.owner, id: end.id };
  }
}
