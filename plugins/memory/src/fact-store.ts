import { randomUUID } from 'node:crypto';
import { OracleError, type PluginDatabase } from '@sibyl/plugin-kit';
import { type Generated, type Kysely, type Selectable, sql } from 'kysely';
import type { Fact } from './fact.js';

/** What one user may have kept. */
const FACTS_PER_USER = 1000;
const WORDS_PER_QUERY = 16;
/** As much of a query as is read: a message may bring megabytes of files. */
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

/** Keeps facts and finds them by their words; every query is of one owner. */
export class FactStore {
  constructor(private readonly database: PluginDatabase<MemoryTables>) {}

  /** Keeps a fact; one that is there already is returned as it is. */
  add({ owner, text }: Owned & { readonly text: string }): Promise<Fact> {
    return this.database.write(async (tables) => {
      await this.lock(tables, owner);
      const known = await ofOwner(tables, owner)
        .where(sql`lower(text)`, '=', text.toLowerCase())
        .executeTakeFirst();
      if (known) return factOf(known);
      await assertRoom(tables, owner);
      const row = { id: randomUUID(), owner, text, created_at: Date.now() };
      await tables.insertInto('memory_facts').values(row).execute();
      return factOf(row);
    });
  }

  /** Newest first. */
  async list(page: Owned & { readonly limit: number; readonly offset: number }): Promise<Fact[]> {
    const rows = await ofOwner(this.database.tables, page.owner)
      .orderBy('created_at', 'desc')
      .orderBy('id', 'desc')
      .limit(page.limit)
      .offset(page.offset)
      .execute();
    return rows.map(factOf);
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
    const words = wordsOf(query.slice(0, QUERY_LENGTH));
    if (words.length === 0) return [];
    const { engine, tables } = this.database;
    const search = engine === 'postgres' ? findInPostgres : findInSqlite;
    return (await search(tables, { owner, words, limit })).map(factOf);
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

  /** One owner's facts are added one after the other; SQLite writes nothing side by side anyway. */
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

const ofOwner = (tables: Tables, owner: string) =>
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
    message: `${FACTS_PER_USER} facts are kept already; forget some first`,
  });
}

/** Letters and digits only, so that nothing in a query can be read as search syntax. */
function wordsOf(query: string): string[] {
  const words = [...new Set(query.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [])];
  const telling = words.filter(({ length }) => length > 2);
  return (telling.length > 0 ? telling : words).slice(0, WORDS_PER_QUERY);
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

function factOf({ id, text, created_at }: FoundRow): Fact {
  return { id, text, createdAt: new Date(Number(created_at)).toISOString() };
}
