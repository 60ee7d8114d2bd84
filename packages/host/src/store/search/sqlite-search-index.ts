import { randomUUID } from 'node:crypto';
import { chmodSync, closeSync, existsSync, mkdirSync, openSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { OracleError } from '@sibyl/protocol';
import type { Kysely } from 'kysely';
import type { Schema } from '../database.js';
import { StoreError } from '../store-errors.js';
import {
  convertParts,
  MAX_CANDIDATES,
  type SearchEntry,
  type SearchHit,
  type SearchIndex,
  type SearchRequest,
  SOURCE_WEIGHTS,
  toOwnerTerm,
  toWholeWords,
} from './search-index.js';
import { type Phrase, readTerms, type SearchQuery } from './terms.js';

const OWNER_ONLY = 0o600;

/** Requests that wait for the worker; beyond it, searches are rejected. */
const MAX_WAITING = 1_000;

/** Each document has the words of its text, each behind the word of its owner: so a search reads only what its user wrote. */
const SETUP = `
  pragma journal_mode = wal;
  pragma synchronous = full;
  pragma journal_size_limit = ${16 * 1024 * 1024};
  create table if not exists documents (
    number integer primary key, owner text not null, source text not null, id text not null,
    part integer not null, scope text not null);
  create unique index if not exists documents_by_key on documents (owner, source, id, part);
  create index if not exists documents_by_scope on documents (owner, scope);
  create virtual table if not exists words using fts5(
    terms, content = '', contentless_delete = 1, tokenize = 'ascii');
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
const remove = prepare('delete from documents where owner = ? and source = ? and id = ? returning number');
const removeWords = prepare('delete from words where rowid = ?');
const insert = prepare('insert into documents (owner, source, id, part, scope) values (?, ?, ?, ?, ?)');
const insertWords = prepare('insert into words (rowid, terms) values (last_insert_rowid(), ?)');
const put = ({ owner, source, id, scope, parts }) => {
  for (const { number } of remove.all(owner, source, id)) removeWords.run(number);
  parts.forEach((words, part) => {
    insert.run(owner, source, id, part, scope);
    insertWords.run(words);
  });
};
parentPort.on('message', (message) => {
  const { id, mode, statements = [], entries = [] } = JSON.parse(message);
  try {
    if (mode === 'write') database.exec('begin immediate');
    let rows = [];
    for (const { sql, values } of statements) rows = prepare(sql).all(...values);
    for (const entry of entries) put(entry);
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
    const values = [toOwnerTerm(owner), scope];
    await this.run({ mode: 'write', statements: removeWhere('owner = ? and scope = ?', values) });
  }

  async removeOwner(owner: string): Promise<void> {
    const statements = removeWhere('owner = ?', [toOwnerTerm(owner)]);
    await this.run({ mode: 'write', statements });
    // Deleted words stay in the file until their segment is merged with another.
    const optimize = { sql: "insert into words (words) values ('optimize')", values: [] };
    await this.run({ mode: 'write', statements: [optimize] });
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

  private async run(request: WorkerRequest): Promise<readonly unknown[]> {
    if (this.unanswered >= MAX_WAITING)
      throw new OracleError('host_busy', { retryAfterSeconds: 5 });
    this.unanswered += 1;
    try {
      const worker = await this.openOnce();
      this.lastId += 1;
      const id = this.lastId;
      const message = JSON.stringify({ id, ...request });
      return await this.request(worker, id, () => worker.postMessage(message));
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

  private request(worker: Worker, id: number, send: () => void): Promise<readonly unknown[]> {
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      // Not kept alive by an idle worker, only by a request.
      worker.ref();
      send();
    });
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
    worker.on('message', (answer: Answer) => this.settle(worker, answer));
    void failed.then((reason) => this.fail(reason));
    worker.unref();
    return worker;
  }

  private settle(worker: Worker, { id, rows, error }: Answer): void {
    const waiting = this.waiting.get(id);
    this.waiting.delete(id);
    if (this.waiting.size === 0) worker.unref();
    if (error === undefined) waiting?.resolve(rows ?? []);
    else waiting?.reject(new StoreError(`The search index failed: ${error}`));
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

const removeWhere = (condition: string, values: readonly string[]): Statement[] => [
  {
    sql: `delete from words where rowid in (select number from documents where ${condition})`,
    values,
  },
  { sql: `delete from documents where ${condition}`, values },
];

function toWords(text: string, { owner }: SearchEntry): string {
  const ownerTerm = toOwnerTerm(owner);
  let words = '';
  for (const term of readTerms(text)) words += `${ownerTerm}${term.text} `;
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
