import { randomUUID } from 'node:crypto';
import { OracleError, type PluginDatabase, type PluginMigrations } from '@sibyl/plugin-kit';
import { wholeNumber } from '@sibyl/protocol';
import { type Generated, type Kysely, type Selectable, sql } from 'kysely';
import { z } from 'zod';

export const FACT_LENGTH = 1000;

/** A fact about a user. */
export const Fact = z
  .object({ id: z.string(), text: z.string(), createdAt: z.iso.datetime() })
  .meta({ id: 'Fact' });
export type Fact = z.infer<typeof Fact>;

/** Reply of `GET /memory`, newest first. */
export const FactPage = z.object({ facts: z.array(Fact), total: z.int() }).meta({ id: 'FactPage' });
export type FactPage = z.infer<typeof FactPage>;

/** Query of `GET /memory`. */
export const ListFacts = z.strictObject({
  limit: wholeNumber({ min: 1, max: 100 }).default(50),
  offset: wholeNumber({ min: 0 }).default(0),
});
export type ListFacts = z.infer<typeof ListFacts>;

/** Reply of `DELETE /memory/:id`. */
export const FactForgotten = z.object({ message: z.string() }).meta({ id: 'FactForgotten' });
export type FactForgotten = z.infer<typeof FactForgotten>;

/** Facts that one user may have. */
const FACTS_PER_USER = 1000;
const WORDS_PER_QUERY = 16;
/** Characters of a query that are searched: a message may contain megabytes of files. */
const QUERY_LENGTH = 4000;

interface FactRow {
  seq: Generated<number>;
  id: string;
  owner: string;
  text: string;
  created_at: number;
}

export interface MemoryTables {
  memory_facts: FactRow;
}

interface Owned {
  readonly owner: string;
}

/** Stores facts and finds them by their words; every query is limited to one owner. */
export class FactStore {
  constructor(private readonly database: PluginDatabase<MemoryTables>) {}

  /** Stores a fact, or returns the one with the same text. */
  add({ owner, text }: Owned & { readonly text: string }): Promise<Fact> {
    return this.database.write(async (tables) => {
      await this.lock(tables, owner);
      const known = await selectFacts(tables, owner)
        .where(sql`lower(text)`, '=', text.toLowerCase())
        .executeTakeFirst();
      if (known) return toFact(known);
      await assertRoom(tables, owner);
      const row = { id: randomUUID(), owner, text, created_at: Date.now() };
      await tables.insertInto('memory_facts').values(row).execute();
      return toFact(row);
    });
  }

  /** Newest first. */
  async list(page: Owned & { readonly limit: number; readonly offset: number }): Promise<Fact[]> {
    const rows = await selectFacts(this.database.tables, page.owner)
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .limit(page.limit)
      .offset(page.offset)
      .execute();
    return rows.map(toFact);
  }

  count({ owner }: Owned): Promise<number> {
    return countFacts(this.database.tables, owner);
  }

  /** Facts that share words with the query, the best first. */
  async find({
    owner,
    query,
    limit,
  }: Owned & { readonly query: string; readonly limit: number }): Promise<Fact[]> {
    const words = splitWords(query.slice(0, QUERY_LENGTH));
    if (words.length === 0) return [];
    const { engine, tables } = this.database;
    const search = engine === 'postgres' ? findInPostgres : findInSqlite;
    return (await search(tables, { owner, words, limit })).map(toFact);
  }

  /** Whether there was such a fact of this owner. */
  remove({ owner, id }: Owned & { readonly id: string }): Promise<boolean> {
    return this.database.write(async (tables) => {
      const { numDeletedRows } = await tables
        .deleteFrom('memory_facts')
        .where('owner', '=', owner)
        .where('id', '=', id)
        .executeTakeFirst();
      return numDeletedRows > 0n;
    });
  }

  /** Serializes the writes of one owner; SQLite has a single writer anyway. */
  private async lock(tables: Tables, owner: string): Promise<void> {
    if (this.database.engine !== 'postgres') return;
    await sql`select pg_advisory_xact_lock(hashtextextended(${`memory ${owner}`}, 0))`.execute(
      tables,
    );
  }
}

type Tables = Kysely<MemoryTables>;

type FoundRow = Omit<Selectable<FactRow>, 'seq'>;

interface Search {
  readonly owner: string;
  readonly words: readonly string[];
  readonly limit: number;
}

const selectFacts = (tables: Tables, owner: string) =>
  tables.selectFrom('memory_facts').selectAll().where('owner', '=', owner);

async function countFacts(tables: Tables, owner: string): Promise<number> {
  const { total } = await tables
    .selectFrom('memory_facts')
    .select((row) => row.fn.countAll().as('total'))
    .where('owner', '=', owner)
    .executeTakeFirstOrThrow();
  return Number(total);
}

async function assertRoom(tables: Tables, owner: string): Promise<void> {
  if ((await countFacts(tables, owner)) < FACTS_PER_USER) return;
  throw new OracleError('bad_request', {
    message: `There are ${FACTS_PER_USER} facts already; forget some first`,
  });
}

/** Letters and digits only, so that nothing in a query can be read as search syntax. */
function splitWords(query: string): string[] {
  const words = [...new Set(query.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [])];
  const long = words.filter(({ length }) => length > 2);
  return (long.length > 0 ? long : words).slice(0, WORDS_PER_QUERY);
}

async function findInPostgres(
  tables: Tables,
  { owner, words, limit }: Search,
): Promise<FoundRow[]> {
  const query = sql`to_tsquery('simple', ${words.map((word) => `${word}:*`).join(' | ')})`;
  const vector = sql`to_tsvector('simple', text)`;
  const { rows } = await sql<FoundRow>`select * from memory_facts
    where owner = ${owner} and ${vector} @@ ${query}
    order by ts_rank(${vector}, ${query}) desc, created_at desc limit ${limit}`.execute(tables);
  return rows;
}

async function findInSqlite(tables: Tables, { owner, words, limit }: Search): Promise<FoundRow[]> {
  const query = words.map((word) => `"${word}"*`).join(' OR ');
  const { rows } = await sql<FoundRow>`select memory_facts.* from memory_words
    join memory_facts on memory_facts.seq = memory_words.rowid
    where memory_words match ${query} and owner = ${owner}
    order by bm25(memory_words), created_at desc limit ${limit}`.execute(tables);
  return rows;
}

function toFact({ id, text, created_at }: FoundRow): Fact {
  return { id, text, createdAt: new Date(Number(created_at)).toISOString() };
}

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
};

// biome-ignore lint/suspicious/noExplicitAny: a migration sees the tables of its time.
type AnyTables = Kysely<any>;

/** The `simple` configuration: users write in any language. */
async function indexWords(tables: AnyTables): Promise<void> {
  await sql`create index memory_facts_by_word on memory_facts using gin (to_tsvector('simple', text))`.execute(
    tables,
  );
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
