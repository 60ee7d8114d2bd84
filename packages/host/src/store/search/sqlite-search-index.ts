import { randomUUID } from 'node:crypto';
import { chmodSync, closeSync, mkdirSync, openSync, rmSync } from 'node:fs';
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
} from './search-index.js';
import { type Phrase, readTerms } from './terms.js';

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

/** Runs in a worker, because a search would block the event loop: statements arrive, rows leave. */
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
parentPort.on('message', ({ id, mode, statements }) => {
  try {
    if (mode === 'write') database.exec('begin immediate');
    let rows = [];
    for (const { sql, values } of statements) rows = prepare(sql).all(...values);
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

interface Waiting {
  readonly resolve: (rows: readonly unknown[]) => void;
  readonly reject: (error: Error) => void;
}

/** The index on SQLite: a separate file, which only a worker reads and writes, and which can be built again at any time. */
export class SqliteSearchIndex implements SearchIndex {
  private readonly path: string;
  private readonly waiting = new Map<number, Waiting>();
  private lastId = 0;
  private opening: Promise<Worker> | undefined;

  constructor(dataDir: string) {
    this.path = join(dataDir, 'search.db');
  }

  async put(_tables: Kysely<Schema>, entries: readonly SearchEntry[]): Promise<void> {
    const statements = entries.flatMap((entry) => removeWhere(BY_KEY, toKeyValues(entry)));
    for await (const { entry, part, value } of convertParts(entries, toWords)) {
      const [owner = '', source = '', id = ''] = toKeyValues(entry);
      statements.push(
        { sql: INSERT_DOCUMENT, values: [owner, source, id, part, entry.scope] },
        { sql: INSERT_WORDS, values: [value] },
      );
    }
    await this.run('write', statements);
  }

  async removeScope(
    _tables: Kysely<Schema>,
    { owner, scope }: { readonly owner: string; readonly scope: string },
  ): Promise<void> {
    await this.run('write', removeWhere('owner = ? and scope = ?', [toOwnerTerm(owner), scope]));
  }

  async removeOwner(owner: string): Promise<void> {
    await this.run('write', removeWhere('owner = ?', [toOwnerTerm(owner)]));
    // Deleted words stay in the file until their segment is merged with another.
    await this.run('write', [{ sql: "insert into words (words) values ('optimize')", values: [] }]);
  }

  async find({ owner, sources, scope, query, limit, offset = 0 }: SearchRequest) {
    const ownerTerm = toOwnerTerm(owner);
    const match = query.map((phrase) => toMatch(phrase, ownerTerm)).join(' AND ');
    const values = [match, ownerTerm, ...sources, ...(scope === undefined ? [] : [scope])];
    const list = sources.map(() => '?').join(', ');
    const sql = buildFind(`source in (${list})${scope === undefined ? '' : ' and scope = ?'}`);
    const rows = await this.run('read', [{ sql, values: [...values, limit, offset] }]);
    return rows as readonly SearchHit[];
  }

  async readGeneration(): Promise<string> {
    const rows = await this.run('write', [
      {
        sql: 'insert into info (generation) select ? where not exists (select 1 from info)',
        values: [randomUUID()],
      },
      { sql: 'select generation from info', values: [] },
    ]);
    return (rows[0] as { readonly generation: string }).generation;
  }

  async close(): Promise<void> {
    const worker = await this.opening?.catch(() => undefined);
    this.opening = Promise.reject(new StoreError('The search index is closed'));
    this.opening.catch(() => undefined);
    await worker?.terminate();
  }

  private async run(
    mode: 'read' | 'write',
    statements: readonly Statement[],
  ): Promise<readonly unknown[]> {
    if (this.waiting.size >= MAX_WAITING)
      throw new OracleError('host_busy', { retryAfterSeconds: 5 });
    this.opening ??= this.openOrReplace();
    const worker = await this.opening;
    this.lastId += 1;
    const id = this.lastId;
    return this.request(worker, id, () => worker.postMessage({ id, mode, statements }));
  }

  private request(worker: Worker, id: number, send: () => void): Promise<readonly unknown[]> {
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      // Not kept alive by an idle worker, only by a request.
      worker.ref();
      send();
    });
  }

  /** A file that cannot be opened is replaced: it contains nothing that is not stored elsewhere. */
  private async openOrReplace(): Promise<Worker> {
    try {
      return await this.open();
    } catch (error) {
      if (!/not a database|malformed|corrupt/i.test(String(error))) {
        this.opening = undefined;
        throw error;
      }
      for (const end of ['', '-wal', '-shm']) rmSync(this.path + end, { force: true });
      return this.open();
    }
  }

  private async open(): Promise<Worker> {
    mkdirSync(join(this.path, '..'), { recursive: true, mode: 0o700 });
    closeSync(openSync(this.path, 'a', OWNER_ONLY));
    chmodSync(this.path, OWNER_ONLY);
    const worker = new Worker(WORKER, {
      eval: true,
      workerData: { path: this.path, setup: SETUP },
      env: {},
    });
    worker.on('message', (answer: Answer) => this.settle(worker, answer));
    worker.on('error', (error) => this.fail(error));
    worker.on('exit', () => this.fail(new StoreError('The search index stopped')));
    await this.request(worker, 0, () => undefined);
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

const BY_KEY = 'owner = ? and source = ? and id = ?';

const INSERT_DOCUMENT =
  'insert into documents (owner, source, id, part, scope) values (?, ?, ?, ?, ?)';
const INSERT_WORDS = 'insert into words (rowid, terms) values (last_insert_rowid(), ?)';

const removeWhere = (condition: string, values: readonly string[]): Statement[] => [
  {
    sql: `delete from words where rowid in (select number from documents where ${condition})`,
    values,
  },
  { sql: `delete from documents where ${condition}`, values },
];

const toKeyValues = ({ owner, source, id }: SearchEntry): readonly string[] => [
  toOwnerTerm(owner),
  source,
  id,
];

function toWords(text: string, { owner }: SearchEntry): string {
  const ownerTerm = toOwnerTerm(owner);
  let words = '';
  for (const term of readTerms(text)) words += `${ownerTerm}${term.text} `;
  return words;
}

/** Words consist of letters and digits, so they need no escaping. */
const toMatch = ({ terms, isPrefix }: Phrase, ownerTerm: string): string =>
  `"${terms.map((term) => ownerTerm + term).join(' ')}"${isPrefix ? ' *' : ''}`;

/** A negative rank is better the lower it is. */
function buildFind(condition: string): string {
  const weights = Object.entries(SOURCE_WEIGHTS).map(
    ([source, factor]) => `when '${source}' then ${factor}`,
  );
  return `with found as materialized (
      select rowid as number, bm25(words) as rank from words where words match ?
      order by rowid desc limit ${MAX_CANDIDATES})
    select source, id, part, -rank * case source ${weights.join(' ')} else 1 end as score
    from found join documents using (number)
    where owner = ? and ${condition}
    order by score desc, number desc limit ? offset ?`;
}
