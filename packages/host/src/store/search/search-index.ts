import { hash, randomUUID } from 'node:crypto';
import { chmodSync, closeSync, existsSync, mkdirSync, openSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTick } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { OracleError } from '@sibyl/protocol';
import { type Kysely, sql } from 'kysely';
import type { StoreContext } from '../database.js';
import type { Schema } from '../schema/index.js';
import { StoreError } from '../store-errors.js';
import { type Phrase, readTerms, type SearchQuery } from './terms.js';

/** Identifies what is searched for: a text of a user, by its kind and id. */
export interface SearchKey {
  readonly owner: string;
  /** Such as `message` or `title`. */
  readonly source: string;
  readonly id: string;
}

/** All that the index contains of a key; a long text has several parts, a deleted one has none. */
export interface SearchEntry extends SearchKey {
  /** What it is removed with, such as its session. */
  readonly scope: string;
  readonly createdAt: number;
  readonly parts: readonly string[];
}

interface SearchRequest {
  readonly owner: string;
  readonly sources: readonly string[];
  /** Only texts of this scope. */
  readonly scope?: string | undefined;
  readonly query: SearchQuery;
  readonly limit: number;
  readonly offset?: number | undefined;
}

export interface SearchHit {
  readonly source: string;
  readonly id: string;
  /** Counts the parts of the text from 0. */
  readonly part: number;
  /** Higher is better; only comparable within one search. */
  readonly score: number;
}

/**
 * A full-text index of the texts of all users. It contains words, not texts, and may contain texts that were just
 * deleted: a reader of a hit takes its text from where it is stored, with its owner.
 */
export interface SearchIndex {
  /** Whether it is not among the tables of the database, which are erased with their user. */
  readonly isSeparate: boolean;
  /** Replaces what the index contains of each key; `tables` is the unit of work, if the index is in the same database. */
  put(tables: Kysely<Schema>, entries: readonly SearchEntry[]): Promise<void>;
  removeScope(
    tables: Kysely<Schema>,
    key: { readonly owner: string; readonly scope: string },
  ): Promise<void>;
  /** Removes all texts of a user. */
  removeOwner(owner: string): Promise<void>;
  /** Texts with all words, the best first; then those with longer words than the last one, the newest first. */
  find(request: SearchRequest): Promise<readonly SearchHit[]>;
  /** Changes when the index was lost and everything has to be indexed again; undefined if it cannot be lost alone. */
  readGeneration(): Promise<string | undefined>;
  /** Whether the index has not been built yet, or was lost; false if it cannot be lost alone. */
  isMissing(): boolean;
  close(): Promise<void>;
}

/** Only the newest of a user's texts with the words are ranked. */
const MAX_CANDIDATES = 1_000;

/** Titles are short and chosen. */
const SOURCE_WEIGHTS: Readonly<Record<string, number>> = { title: 2 };

/** The query without longer words than its last one. */
export const toWholeWords = (query: SearchQuery): SearchQuery =>
  query.map((phrase) => ({ ...phrase, isPrefix: false }));

/** A word for an owner: too long to find another owner with the same one. */
export const toOwnerTerm = (owner: string): string => hash('sha256', owner).slice(0, 24);

/** How many characters are split into words before other work has a turn. */
const CHARACTERS_PER_TICK = 50_000;

/** Converts the parts of entries one after the other, without blocking the event loop for long. */
export async function* convertParts<T>(
  entries: readonly SearchEntry[],
  convert: (text: string, entry: SearchEntry) => T,
): AsyncGenerator<{ readonly entry: SearchEntry; readonly part: number; readonly value: T }> {
  let characters = 0;
  for (const entry of entries)
    for (const [part, text] of entry.parts.entries()) {
      yield { entry, part, value: convert(text, entry) };
      characters += text.length;
      if (characters < CHARACTERS_PER_TICK) continue;
      characters = 0;
      await nextTick();
    }
}

/** The newest documents of a user, and how many of them a common word is in. */
const NEWEST = 2_000;
const COMMON = 200;

const CHARACTERS_PER_STATEMENT = 256 * 1024;

/** In one statement, because each takes a round trip. */
async function insertDocuments(tables: Kysely<Schema>, rows: readonly object[]): Promise<void> {
  await sql`insert into search_documents (owner, source, id, part, scope, created_at, terms)
    select owner, source, id, part, scope, created_at, terms::tsvector
    from json_to_recordset(${JSON.stringify(rows)}::json) as added
      (owner text, source text, id text, part bigint, scope text, created_at bigint, terms text)
    on conflict (owner, source, id, part) do update set terms = excluded.terms`.execute(tables);
}

/** The limits of a `tsvector`. */
const MAX_POSITION = 16_383;
const MAX_POSITIONS = 255;

/**
 * The index on PostgreSQL. Each word is behind a term of its owner, so that a search reads only what its user wrote, also one
 * for the beginning of a word.
 */
export class PostgresSearchIndex implements SearchIndex {
  readonly isSeparate = false;

  constructor(private readonly context: StoreContext) {}

  async put(tables: Kysely<Schema>, entries: readonly SearchEntry[]): Promise<void> {
    const pick = (key: 'owner' | 'source' | 'id') => entries.map((entry) => entry[key]);
    await sql`delete from search_documents where (owner, source, id) in (
      select * from unnest(${pick('owner')}::text[], ${pick('source')}::text[], ${pick('id')}::text[]))`.execute(
      tables,
    );
    let batch: object[] = [];
    let characters = 0;
    for await (const { entry, part, value } of convertParts(entries, toVector)) {
      const { owner, source, id, scope, createdAt } = entry;
      batch.push({ owner, source, id, part, scope, created_at: createdAt, terms: value });
      characters += value.length;
      if (characters < CHARACTERS_PER_STATEMENT) continue;
      await insertDocuments(tables, batch);
      batch = [];
      characters = 0;
    }
    if (batch.length > 0) await insertDocuments(tables, batch);
  }

  async removeScope(
    tables: Kysely<Schema>,
    { owner, scope }: { readonly owner: string; readonly scope: string },
  ): Promise<void> {
    await tables
      .deleteFrom('search_documents')
      .where('owner', '=', owner)
      .where('scope', '=', scope)
      .execute();
  }

  async removeOwner(owner: string): Promise<void> {
    await this.context.database.write((tables) =>
      tables.deleteFrom('search_documents').where('owner', '=', owner).execute(),
    );
  }

  async find({ owner, sources, scope, query, limit, offset = 0 }: SearchRequest) {
    const prefix = toPrefix(owner);
    const words = sql`${toTsQuery(query, prefix)}::tsquery`;
    const wholeWords = sql`${toTsQuery(toWholeWords(query), prefix)}::tsquery`;
    const own = sql`owner = ${owner} and source = any(${[...sources]}::text[])
      ${scope === undefined ? sql`` : sql`and scope = ${scope}`}`;
    const weight = sql.join(
      Object.entries(SOURCE_WEIGHTS).map(
        ([source, factor]) => sql`when source = ${source} then ${factor}::float8`,
      ),
      sql` `,
    );
    const columns = sql`source, id, part, created_at, terms`;
    // The documents of a user are all over the table: of a common word, only the newest are read.
    const { rows } = await sql<SearchHit>`
      with newest as materialized (
        select ${columns} from search_documents where ${own}
        order by created_at desc limit ${NEWEST}
      ), common as materialized (
        select ${columns} from newest where terms @@ ${words}
      ), found as (
        select ${columns} from common where (select count(*) from common) >= ${COMMON}
        union all
        (select ${columns} from search_documents
          where (select count(*) from common) < ${COMMON} and terms @@ ${words} and ${own}
          order by created_at desc limit ${MAX_CANDIDATES})
      ), weighed as (
        select *, case ${weight} else 1 end as weight, (terms @@ ${wholeWords})::int as is_whole
        from found
      )
      select source, id, part, ts_rank(terms, ${words}, 1) * weight * is_whole as score
      from weighed order by score desc, weight desc, created_at desc, id
      limit ${limit} offset ${offset}`.execute(this.context.database.tables);
    return rows;
  }

  async readGeneration(): Promise<undefined> {}

  isMissing(): boolean {
    return false;
  }

  async close(): Promise<void> {}
}

function toVector(text: string, { owner }: SearchEntry): string {
  const prefix = toPrefix(owner);
  const positions = new Map<string, number[]>();
  let position = 0;
  for (const { text: term } of readTerms(text)) {
    position = Math.min(position + 1, MAX_POSITION);
    const known = positions.get(term) ?? [];
    if (known.length < MAX_POSITIONS && known.at(-1) !== position) known.push(position);
    positions.set(term, known);
  }
  return [...positions].map(([term, at]) => `'${prefix}${term}':${at.join(',')}`).join(' ');
}

/** Short, because each word has it; the query compares the owner as well. */
const toPrefix = (owner: string): string => toOwnerTerm(owner).slice(0, 8);

/** Words consist of letters and digits, so they need no escaping. */
function toTsQuery(query: SearchQuery, prefix: string): string {
  const toPhrase = ({ terms, isPrefix }: Phrase) =>
    terms.map((term, i) => `'${prefix}${term}'${isPrefix && i === terms.length - 1 ? ':*' : ''}`);
  return query.map((phrase) => `(${toPhrase(phrase).join(' <-> ')})`).join(' & ');
}

const OWNER_ONLY = 0o600;

/** Requests that wait for the worker; beyond it, searches are rejected. */
const MAX_WAITING = 1_000;

/** Documents that one transaction removes: each of their words takes some microseconds, and searches wait meanwhile. */
const REMOVED_DOCUMENTS = 50;

/**
 * Each document has the words of its text, in the index each behind the word of its owner: so a search reads only what its
 * user wrote. With them, they can be removed from the index without a trace.
 */
const SETUP = `
  pragma secure_delete = on;
  pragma journal_mode = wal;
  pragma synchronous = full;
  pragma journal_size_limit = ${16 * 1024 * 1024};
  create table if not exists documents (
    number integer primary key, owner text not null, source text not null, id text not null,
    part integer not null, scope text not null, terms text not null);
  create unique index if not exists documents_by_key on documents (owner, source, id, part);
  create index if not exists documents_by_scope on documents (owner, scope);
  create virtual table if not exists words using fts5(terms, content = '', tokenize = 'ascii');
  insert into words (words, rank) values ('secure-delete', 1);
  create table if not exists info (generation text not null);
`;

/**
 * Runs in a worker, because a search would block the event loop: statements or texts arrive as JSON, which is copied faster
 * than objects, and rows leave.
 */
const WORKER = `
const { parentPort, workerData } = require('node:worker_threads');
const { DatabaseSync } = require('node:sqlite');
const database = new DatabaseSync(workerData.path, { timeout: 10_000 });
database.exec(workerData.setup);
const prepared = new Map();
const prepare = (sql) => {
  if (!prepared.has(sql)) prepared.set(sql, database.prepare(sql));
  return prepared.get(sql);
};
const addOwner = (owner, terms) => terms.replaceAll(/[^ ]+/g, (term) => owner + term);
const removeWords = prepare("insert into words (words, rowid, terms) values ('delete', ?, ?)");
const remove = (condition, values) => {
  const removed = prepare('delete from documents where ' + condition + ' returning number, owner, terms').all(...values);
  for (const { number, owner, terms } of removed) removeWords.run(number, addOwner(owner, terms));
  return removed.map(({ number }) => ({ number }));
};
const insert = prepare('insert into documents (owner, source, id, part, scope, terms) values (?, ?, ?, ?, ?, ?)');
const insertWords = prepare('insert into words (rowid, terms) values (last_insert_rowid(), ?)');
const put = ({ owner, source, id, scope, parts }) => {
  remove('owner = ? and source = ? and id = ?', [owner, source, id]);
  parts.forEach((terms, part) => {
    insert.run(owner, source, id, part, scope, terms);
    insertWords.run(addOwner(owner, terms));
  });
};
parentPort.on('message', (message) => {
  const { id, mode, statements = [], entries = [], removed } = JSON.parse(message);
  try {
    if (mode === 'write') database.exec('begin immediate');
    let rows = [];
    for (const { sql, values } of statements) rows = prepare(sql).all(...values);
    for (const entry of entries) put(entry);
    if (removed) rows = remove(removed.sql, removed.values);
    if (mode === 'write') database.exec('commit');
    parentPort.postMessage({ id, rows });
  } catch (error) {
    if (database.isTransaction) database.exec('rollback');
    parentPort.postMessage({ id, error: error.message });
  }
});
parentPort.postMessage({ id: 0, rows: [] });
`;

interface Statement {
  readonly sql: string;
  readonly values: readonly (string | number)[];
}

/** The words of a text, for the worker. */
interface PutEntry {
  readonly owner: string;
  readonly source: string;
  readonly id: string;
  readonly scope: string;
  readonly parts: string[];
}

interface WorkerRequest {
  readonly mode: 'read' | 'write';
  readonly statements?: readonly Statement[];
  readonly entries?: readonly PutEntry[];
  /** A condition: documents that it fits are removed. */
  readonly removed?: Statement;
}

interface Waiting {
  readonly resolve: (rows: readonly unknown[]) => void;
  readonly reject: (error: Error) => void;
}

/** The index on SQLite: a separate file, which only a worker reads and writes, and which can be built again at any time. */
export class SqliteSearchIndex implements SearchIndex {
  readonly isSeparate = true;
  private readonly path: string;
  private readonly waiting = new Map<number, Waiting>();
  private lastId = 0;
  private opening: Promise<Worker> | undefined;
  /** Requests that wait for the worker to open, or for its answer. */
  private unanswered = 0;
  private isClosed = false;

  constructor(dataDir: string) {
    this.path = join(dataDir, 'search.db');
  }

  async put(_tables: Kysely<Schema>, entries: readonly SearchEntry[]): Promise<void> {
    const put = new Map<SearchEntry, PutEntry>();
    for (const entry of entries) {
      const { source, id, scope } = entry;
      put.set(entry, { owner: toOwnerTerm(entry.owner), source, id, scope, parts: [] });
    }
    for await (const { entry, value } of convertParts(entries, toWords))
      put.get(entry)?.parts.push(value);
    await this.run({ mode: 'write', entries: [...put.values()] });
  }

  async removeScope(
    _tables: Kysely<Schema>,
    { owner, scope }: { readonly owner: string; readonly scope: string },
  ): Promise<void> {
    await this.removeWhere('owner = ? and scope = ?', [toOwnerTerm(owner), scope]);
  }

  async removeOwner(owner: string): Promise<void> {
    await this.removeWhere('owner = ?', [toOwnerTerm(owner)]);
    // The log contains what was deleted.
    const empty = { sql: 'pragma wal_checkpoint(truncate)', values: [] };
    await this.run({ mode: 'read', statements: [empty] });
  }

  async find({ owner, sources, scope, query, limit, offset = 0 }: SearchRequest) {
    const ownerTerm = toOwnerTerm(owner);
    const matches = [toWholeWords(query), query].map((one) => toMatch(one, ownerTerm));
    const values = [...matches, ownerTerm, ...sources];
    const list = sources.map(() => '?').join(', ');
    const sql = buildFind(`source in (${list})${scope === undefined ? '' : ' and scope = ?'}`);
    if (scope !== undefined) values.push(scope);
    const rows = await this.run({
      mode: 'read',
      statements: [{ sql, values: [...values, limit, offset] }],
    });
    return rows as readonly SearchHit[];
  }

  async readGeneration(): Promise<string> {
    const statements = [
      {
        sql: 'insert into info (generation) select ? where not exists (select 1 from info)',
        values: [randomUUID()],
      },
      { sql: 'select generation from info', values: [] },
    ];
    const rows = await this.run({ mode: 'write', statements });
    return (rows[0] as { readonly generation: string }).generation;
  }

  isMissing(): boolean {
    return !existsSync(this.path);
  }

  async close(): Promise<void> {
    this.isClosed = true;
    const worker = await this.opening?.catch(() => undefined);
    await worker?.terminate();
  }

  private async removeWhere(condition: string, values: readonly string[]): Promise<void> {
    const some = `select number from documents where ${condition} limit ${REMOVED_DOCUMENTS}`;
    const removed = { sql: `number in (${some})`, values };
    while ((await this.run({ mode: 'write', removed })).length === REMOVED_DOCUMENTS);
  }

  private async run(request: WorkerRequest): Promise<readonly unknown[]> {
    if (this.unanswered >= MAX_WAITING)
      throw new OracleError('host_busy', { retryAfterSeconds: 5 });
    this.unanswered += 1;
    try {
      const worker = await this.openOnce();
      this.lastId += 1;
      const id = this.lastId;
      return await new Promise((resolve, reject) => {
        this.waiting.set(id, { resolve, reject });
        // Not kept alive by an idle worker, only by a request.
        worker.ref();
        worker.postMessage(JSON.stringify({ id, ...request }));
      });
    } finally {
      this.unanswered -= 1;
    }
  }

  private async openOnce(): Promise<Worker> {
    if (!this.isClosed) this.opening ??= this.openOrReplace();
    const worker = await this.opening;
    if (this.isClosed || !worker) throw new StoreError('The search index is closed');
    return worker;
  }

  private async openOrReplace(): Promise<Worker> {
    try {
      return await this.open().catch((error) => this.replace(error));
    } catch (error) {
      this.opening = undefined;
      throw error;
    }
  }

  /** A damaged file is replaced: it contains nothing that is not stored elsewhere. */
  private replace(error: unknown): Promise<Worker> {
    if (!/not a database|malformed|corrupt/i.test(String(error))) throw error;
    for (const end of ['', '-wal', '-shm']) rmSync(this.path + end, { force: true });
    return this.open();
  }

  private async open(): Promise<Worker> {
    mkdirSync(join(this.path, '..'), { recursive: true, mode: 0o700 });
    closeSync(openSync(this.path, 'a', OWNER_ONLY));
    chmodSync(this.path, OWNER_ONLY);
    const worker = new Worker(WORKER, {
      eval: true,
      workerData: { path: this.path, setup: SETUP },
      env: {},
      // Its heap would grow for as long as it may; what it needs is small.
      resourceLimits: { maxYoungGenerationSizeMb: 8 },
    });
    // A worker that fails also exits, when another may already run: only the first counts.
    const failed = new Promise<Error>((resolve) => {
      worker.once('error', resolve);
      worker.once('exit', () => resolve(new StoreError('The search index stopped')));
    });
    const ready = new Promise<undefined>((resolve) =>
      worker.once('message', () => resolve(undefined)),
    );
    const error = await Promise.race([ready, failed]);
    if (error) throw error;
    worker.on('message', ({ id, rows, error }: Answer) => {
      const waiting = this.waiting.get(id);
      this.waiting.delete(id);
      if (this.waiting.size === 0) worker.unref();
      if (error === undefined) waiting?.resolve(rows ?? []);
      else waiting?.reject(new StoreError(`The search index failed: ${error}`));
    });
    void failed.then((reason) => this.fail(reason));
    worker.unref();
    return worker;
  }

  /** The next request starts another worker. */
  private fail(error: Error): void {
    const waiting = [...this.waiting.values()];
    this.waiting.clear();
    this.opening = undefined;
    for (const { reject } of waiting) reject(error);
  }
}

interface Answer {
  readonly id: number;
  readonly rows?: readonly unknown[];
  readonly error?: string;
}

function toWords(text: string): string {
  let words = '';
  for (const term of readTerms(text)) words += `${term.text} `;
  return words;
}

/** Words consist of letters and digits, so they need no escaping. */
function toMatch(query: SearchQuery, ownerTerm: string): string {
  const toPhrase = ({ terms, isPrefix }: Phrase) =>
    `"${terms.map((term) => ownerTerm + term).join(' ')}"${isPrefix ? ' *' : ''}`;
  return query.map(toPhrase).join(' AND ');
}

/** Those with longer words are not ranked, which would take as long again. A negative rank is better the lower it is. */
function buildFind(condition: string): string {
  const weights = Object.entries(SOURCE_WEIGHTS).map(
    ([source, factor]) => `when '${source}' then ${factor}`,
  );
  return `with ranked as materialized (
      select rowid as number, bm25(words) as rank from words where words match ?
      order by rowid desc limit ${MAX_CANDIDATES}),
    others as materialized (
      select rowid as number, 0 as rank from words
      where words match ? and rowid not in (select number from ranked)
      order by rowid desc limit ${MAX_CANDIDATES}),
    weighed as (
      select *, case source ${weights.join(' ')} else 1 end as weight
      from (select * from ranked union all select * from others) join documents using (number)
      where owner = ? and ${condition})
    select source, id, part, -rank * weight as score
    from weighed order by score desc, weight desc, number desc limit ? offset ?`;
}
