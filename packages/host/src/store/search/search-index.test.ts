import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { Worker } from 'node:worker_threads';
import {
  DummyDriver,
  Kysely,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from 'kysely';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { countEventLoopTurns } from '../../../test/support/event-loop-turns.js';
import { openRecordedPostgres } from '../../../test/support/recorded-postgres.js';
import type { Schema } from '../schema/index.js';
import { StoreError } from '../store-errors.js';
import {
  convertParts,
  PostgresSearchIndex,
  type SearchEntry,
  SqliteSearchIndex,
  toOwnerTerm,
  toWholeWords,
} from './search-index.js';
import { parseQuery } from './terms.js';

const owner = 'did:key:zAnn';
const prefix = toOwnerTerm(owner).slice(0, 8);

const createEntry = (parts: readonly string[], more: Partial<SearchEntry> = {}): SearchEntry => ({
  ...{ owner, source: 'message', id: 'm1', scope: 's1', createdAt: 7, parts },
  ...more,
});

/** An index on PostgreSQL without a server. */
function openIndex() {
  const { context, tables, statements } = openRecordedPostgres();
  return { index: new PostgresSearchIndex(context), tables, statements };
}

interface Document {
  readonly owner: string;
  readonly id: string;
  readonly part: number;
  readonly terms: string;
}

/** Puts entries; returns how many statements inserted documents, and the documents. */
async function put(entries: readonly SearchEntry[]) {
  const { index, tables, statements } = openIndex();
  await index.put(tables, entries);
  const [deletion, ...insertions] = statements;
  for (const { sql } of insertions) expect(sql).toMatch(/^insert into search_documents /);
  const documents: Document[] = insertions.flatMap(({ parameters }) =>
    JSON.parse(String(parameters[0])),
  );
  return { deletion, insertions: insertions.length, documents };
}

describe('PostgresSearchIndex.put', () => {
  it('replaces all parts of each key, and keeps their scope and time', async () => {
    const ann = createEntry(['first', 'second']);
    const bob = createEntry([], { owner: 'did:key:zBob', source: 'title', id: 's2' });
    const { deletion, insertions, documents } = await put([ann, bob]);
    expect(deletion?.sql).toMatch(/^delete from search_documents where \(owner, source, id\) in/);
    expect(deletion?.parameters).toEqual([
      [owner, 'did:key:zBob'],
      ['message', 'title'],
      ['m1', 's2'],
    ]);
    const stored = { owner, source: 'message', id: 'm1', scope: 's1', created_at: 7 };
    expect(insertions).toBe(1);
    expect(documents).toEqual([
      { ...stored, part: 0, terms: `'${prefix}first':1` },
      { ...stored, part: 1, terms: `'${prefix}second':1` },
    ]);
  });

  it('inserts nothing of texts that were deleted', async () => {
    expect(await put([createEntry([])])).toMatchObject({ insertions: 0, documents: [] });
  });

  it('has each word once with its positions, behind a word of its owner', async () => {
    const { documents } = await put([
      createEntry(['One two, ONE']),
      createEntry(['one'], { owner: 'did:key:zBob' }),
    ]);
    const [ann, bob] = documents;
    expect(ann?.terms).toBe(`'${prefix}one':1,3 '${prefix}two':2`);
    expect(bob?.terms).toBe(`'${toOwnerTerm('did:key:zBob').slice(0, 8)}one':1`);
    expect(bob?.terms).not.toContain(prefix);
  });

  it('stays within the limits of a vector: 255 positions of a word, the last at 16383', async () => {
    const { documents } = await put([
      createEntry(['again '.repeat(300)]),
      createEntry([`${'w '.repeat(16_381)}before last last behind`]),
    ]);
    const [many, long] = documents.map(({ terms }) => terms);
    const positions = many?.split(':')[1]?.split(',');
    expect(positions).toEqual(Array.from({ length: 255 }, (_, i) => String(i + 1)));
    expect(long).toMatch(
      new RegExp(`'${prefix}before':16382 '${prefix}last':16383 '${prefix}behind':16383$`),
    );
  });

  it('sends a long text in several statements, each document once', async () => {
    // About 100,000 characters of words with their prefix.
    const text = Array.from({ length: 4_500 }, (_, i) => `word${i}`).join(' ');
    const parts = Array.from({ length: 7 }, () => text);
    const { insertions, documents } = await put([createEntry(parts)]);
    expect(insertions).toBe(3);
    expect(documents.map(({ part }) => part)).toEqual([0, 1, 2, 3, 4, 5, 6]);
    expect((await put([createEntry(parts.slice(0, 6))])).insertions).toBe(2);
    expect((await put([createEntry(parts.slice(0, 2))])).insertions).toBe(1);
  });
});

describe('PostgresSearchIndex.find', () => {
  async function find(text: string, more: { scope?: string; offset?: number } = {}) {
    const { index, statements } = openIndex();
    const request = { owner, sources: ['message', 'title'], query: parseQuery(text), limit: 5 };
    expect(await index.find({ ...request, ...more })).toEqual([]);
    const [statement] = statements;
    return { sql: statement?.sql ?? '', values: statement?.parameters ?? [] };
  }

  it('looks for all phrases in the words of the owner, the last perhaps longer', async () => {
    const { values } = await find('"carbon footprint" low-carb');
    const word = (text: string) => `'${prefix}${text}'`;
    const phrase = `(${word('carbon')} <-> ${word('footprint')})`;
    expect(values).toContain(`${phrase} & (${word('low')} <-> ${word('carb')}:*)`);
    // Whole words are better.
    expect(values).toContain(`${phrase} & (${word('low')} <-> ${word('carb')})`);
  });

  it('finds only texts of the owner and of the wanted sources, the best first', async () => {
    const { sql, values } = await find('zebra');
    expect(sql.match(/owner = \$\d+ and source = any\(/g)).toHaveLength(2);
    expect(sql).not.toMatch(/scope = /);
    expect(sql).toMatch(/when source = \$\d+ then \$\d+::float8 else 1 end/);
    expect(sql).toMatch(/order by score desc, weight desc, created_at desc, id/);
    expect(values.filter((value) => value === owner)).toHaveLength(2);
    expect(values).toContainEqual(['message', 'title']);
    expect(values.slice(-2)).toEqual([5, 0]);
  });

  it('finds texts of one scope if it is given, and continues at an offset', async () => {
    const { sql, values } = await find('zebra', { scope: 's1', offset: 10 });
    expect(sql.match(/and scope = \$\d+/g)).toHaveLength(2);
    expect(values.filter((value) => value === 's1')).toHaveLength(2);
    expect(values.slice(-2)).toEqual([5, 10]);
  });
});

describe('PostgresSearchIndex', () => {
  it('removes the texts of one owner, or those of one scope', async () => {
    const { index, tables, statements } = openIndex();
    await index.removeScope(tables, { owner, scope: 's1' });
    await index.removeOwner(owner);
    expect(statements.map(({ sql, parameters }) => [sql, parameters])).toEqual([
      ['delete from "search_documents" where "owner" = $1 and "scope" = $2', [owner, 's1']],
      ['delete from "search_documents" where "owner" = $1', [owner]],
    ]);
  });

  it('cannot be lost without the database', async () => {
    const { index, statements } = openIndex();
    expect(await index.readGeneration()).toBeUndefined();
    expect(index.isMissing()).toBe(false);
    await index.close();
    expect(statements).toEqual([]);
  });
});

describe('the words of a search index', () => {
  it('toOwnerTerm differs between owners and is always the same for one', () => {
    expect(toOwnerTerm(owner)).toMatch(/^[0-9a-f]{24}$/);
    expect(toOwnerTerm(owner)).toBe(toOwnerTerm(owner));
    expect(toOwnerTerm('did:key:zBob')).not.toBe(toOwnerTerm(owner));
  });

  it('toWholeWords leaves out longer words than the last one', () => {
    expect(toWholeWords(parseQuery('"one two" three'))).toEqual([
      { terms: ['one', 'two'], isPrefix: false },
      { terms: ['three'], isPrefix: false },
    ]);
  });

  it('convertParts converts all parts in order', async () => {
    const entries = [createEntry(['a', 'b']), createEntry([]), createEntry(['c'], { id: 'm2' })];
    const converted = [];
    for await (const { entry, part, value } of convertParts(entries, (text, { id }) => id + text))
      converted.push([entry.id, part, value]);
    expect(converted).toEqual([
      ['m1', 0, 'm1a'],
      ['m1', 1, 'm1b'],
      ['m2', 0, 'm2c'],
    ]);
  });

  it('convertParts lets other work have a turn after 50,000 characters', async () => {
    const parts = [49_999, 1, 49_999, 1].map((length) => 'x'.repeat(length));
    const readTurns = countEventLoopTurns();
    const before: number[] = [];
    for await (const _ of convertParts([createEntry(parts)], () => undefined))
      before.push(readTurns());
    const [first, second, third, fourth] = before;
    expect([first, second]).toEqual([0, 0]);
    expect(third).toBeGreaterThan(0);
    expect(fourth).toBe(third);
    expect(readTurns()).toBeGreaterThan(fourth ?? 0);
  });
});

const [ann, bob] = ['did:key:zAnn', 'did:key:zBob'];

/** The index has a separate file and does not use these. */
const tables = new Kysely<Schema>({
  dialect: {
    createAdapter: () => new SqliteAdapter(),
    createDriver: () => new DummyDriver(),
    createIntrospector: (db) => new SqliteIntrospector(db),
    createQueryCompiler: () => new SqliteQueryCompiler(),
  },
});

function createFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sibyl-index-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

function open(folder = createFolder()) {
  const index = new SqliteSearchIndex(folder);
  onTestFinished(() => index.close());
  const put = (owner: string, id: string, more: Partial<SearchEntry>) =>
    index.put(tables, [
      { owner, id, source: 'message', scope: 's1', createdAt: 0, parts: [], ...more },
    ]);
  const find = (owner: string, text: string, more: { scope?: string; sources?: string[] } = {}) =>
    index.find({
      ...{ owner, sources: ['message', 'title'], query: parseQuery(text), limit: 10 },
      ...more,
    });
  const list = async (owner: string, text: string, more: { scope?: string } = {}) =>
    (await find(owner, text, more)).map(({ id, part }) => `${id}.${part}`).sort();
  return { index, put, find, list, path: join(folder, 'search.db') };
}

/** What the file has of words, also of those that are marked as deleted. */
function readWords(path: string): string {
  const database = new DatabaseSync(path);
  const rows = database.prepare('select block from words_data').all();
  database.close();
  return rows.map(({ block }) => Buffer.from(block as Uint8Array).toString('latin1')).join(' ');
}

/** Without what it has in common with the word before it, which is not stored again. */
const toStored = (owner: string) => toOwnerTerm(owner).slice(4);

afterEach(() => vi.restoreAllMocks());

describe('SqliteSearchIndex.find', () => {
  it('finds only texts of the owner, also if another has the same ids', async () => {
    const { put, list } = open();
    await put(ann, 'm1', { parts: ['a zebra', 'a lion'] });
    await put(bob, 'm1', { parts: ['a tiger', 'a zebra'] });
    expect(await list(ann, 'zebra')).toEqual(['m1.0']);
    expect(await list(bob, 'zebra')).toEqual(['m1.1']);
    expect(await list(ann, 'tiger')).toEqual([]);
    expect(await list(bob, 'li')).toEqual([]);
    expect(await list('did:key:zEve', 'zebra')).toEqual([]);
  });

  it('finds texts with all phrases, and longer words than the last one', async () => {
    const { put, list } = open();
    await put(ann, 'm1', { parts: ['carbon footprint of soil'] });
    await put(ann, 'm2', { parts: ['footprint of carbon'] });
    await put(ann, 'm3', { parts: ['soil'] });
    expect(await list(ann, '"carbon footprint"')).toEqual(['m1.0']);
    expect(await list(ann, 'carbon foot')).toEqual(['m1.0', 'm2.0']);
    expect(await list(ann, 'carbon foot ')).toEqual([]);
    expect(await list(ann, 'foot carbon')).toEqual([]);
    expect(await list(ann, 'carbon soil')).toEqual(['m1.0']);
  });

  it('finds texts of the wanted sources, and of one scope if it is given', async () => {
    const { put, find, list } = open();
    await put(ann, 'm1', { parts: ['zebra'], scope: 's1' });
    await put(ann, 'm2', { parts: ['zebra'], scope: 's2' });
    await put(ann, 'n1', { parts: ['zebra'], source: 'note' });
    expect(await list(ann, 'zebra')).toEqual(['m1.0', 'm2.0']);
    expect(await list(ann, 'zebra', { scope: 's2' })).toEqual(['m2.0']);
    expect(await list(ann, 'zebra', { scope: '' })).toEqual([]);
    expect(await find(ann, 'zebra', { sources: ['note'] })).toMatchObject([
      { source: 'note', id: 'n1' },
    ]);
  });

  it('returns titles before messages, whole words before longer ones, and then the newest first', async () => {
    const { put, find } = open();
    await put(ann, 't1', { parts: ['zebra'], source: 'title' });
    await put(ann, 't2', { parts: ['zebras'], source: 'title' });
    await put(ann, 'm1', { parts: ['zebra'] });
    await put(ann, 'm2', { parts: ['zebra'] });
    await put(ann, 'm3', { parts: ['zebras'] });
    await put(ann, 'm4', { parts: ['lion'] });
    const found = await find(ann, 'zebra');
    expect(found.map(({ id }) => id)).toEqual(['t1', 'm2', 'm1', 't2', 'm3']);
    const [title, message, , longer] = found.map(({ score }) => score);
    expect(title).toBeCloseTo(2 * (message ?? 0));
    expect(message).toBeGreaterThan(0);
    expect(Math.abs(longer ?? 1)).toBe(0);
  });

  it('returns as many as wanted from an offset on', async () => {
    const { index, put } = open();
    for (const id of ['m1', 'm2', 'm3']) await put(ann, id, { parts: ['zebra'] });
    const page = async (limit: number, offset?: number) => {
      const request = { owner: ann, sources: ['message'], query: parseQuery('zebra') };
      return (await index.find({ ...request, limit, offset })).map(({ id }) => id);
    };
    expect(await page(2)).toEqual(['m3', 'm2']);
    expect(await page(2, 2)).toEqual(['m1']);
  });

  it('fails for what is not a query, and works afterwards', async () => {
    const { index, put, list } = open();
    await put(ann, 'm1', { parts: ['zebra'] });
    const query = [{ terms: ['"'], isPrefix: false }];
    const failed = index.find({ owner: ann, sources: ['message'], query, limit: 1 });
    await expect(failed).rejects.toThrow(StoreError);
    await expect(failed).rejects.toThrow('The search index failed: unterminated string');
    expect(await list(ann, 'zebra')).toEqual(['m1.0']);
  });
});

describe('SqliteSearchIndex', () => {
  it('replaces what it contains of a key, and of no other', async () => {
    const { put, list } = open();
    for (const id of ['m1', 'm2']) await put(ann, id, { parts: ['zebra', 'lion'] });
    await put(ann, 'm1', { parts: ['tiger'], source: 'title' });
    await put(bob, 'm1', { parts: ['tiger'] });
    await put(ann, 'm1', { parts: ['lion'] });
    expect(await list(ann, 'zebra')).toEqual(['m2.0']);
    expect(await list(ann, 'lion')).toEqual(['m1.0', 'm2.1']);
    expect(await list(ann, 'tiger')).toEqual(['m1.0']);
    await put(ann, 'm2', { parts: [] });
    expect(await list(ann, 'lion')).toEqual(['m1.0']);
    expect(await list(bob, 'tiger')).toEqual(['m1.0']);
  });

  it('removeScope removes the texts of one scope of one owner', async () => {
    const { index, put, list } = open();
    for (const owner of [ann, bob])
      for (const scope of ['s1', 's2']) await put(owner, `m-${scope}`, { parts: ['zebra'], scope });
    await index.removeScope(tables, { owner: ann, scope: 's1' });
    expect(await list(ann, 'zebra')).toEqual(['m-s2.0']);
    expect(await list(bob, 'zebra')).toEqual(['m-s1.0', 'm-s2.0']);
  });

  it('removeOwner leaves no word of the owner in the file', async () => {
    const { index, put, list, path } = open();
    for (const id of ['m1', 'm2', 'm3'])
      for (const owner of [ann, bob]) await put(owner, id, { parts: [`zebra ${id}`] });
    expect(readWords(path)).toContain(toStored(ann));
    await index.removeOwner(ann);
    expect(await list(ann, 'zebra')).toEqual([]);
    expect(await list(bob, 'zebra')).toEqual(['m1.0', 'm2.0', 'm3.0']);
    const words = readWords(path);
    expect(words).not.toContain(toStored(ann));
    expect(words).toContain(toStored(bob));
  });

  it('is a file that only its owner may read, also if it was another before', async () => {
    const folder = join(createFolder(), 'new', 'folder');
    const first = open(folder);
    expect(first.index.isMissing()).toBe(true);
    await first.index.readGeneration();
    expect(first.index.isMissing()).toBe(false);
    expect(statSync(first.path).mode & 0o777).toBe(0o600);
    expect(statSync(folder).mode & 0o777).toBe(0o700);
    const shared = createFolder();
    writeFileSync(join(shared, 'search.db'), '', { mode: 0o644 });
    const second = open(shared);
    await second.index.readGeneration();
    expect(statSync(second.path).mode & 0o777).toBe(0o600);
  });

  it('has the same generation until the file is lost', async () => {
    const folder = createFolder();
    const { index } = open(folder);
    const generation = await index.readGeneration();
    expect(generation).toMatch(/^[0-9a-f-]{36}$/);
    expect(await index.readGeneration()).toBe(generation);
    await index.close();
    const again = open(folder);
    expect(await again.index.readGeneration()).toBe(generation);
    await again.index.close();
    for (const end of ['', '-wal', '-shm']) rmSync(again.path + end, { force: true });
    expect(await open(folder).index.readGeneration()).not.toBe(generation);
  });
});

describe('the file of a SqliteSearchIndex', () => {
  it('is replaced with its other files if it is damaged', async () => {
    const folder = createFolder();
    const path = join(folder, 'search.db');
    for (const end of ['', '-wal', '-shm']) writeFileSync(path + end, 'damaged'.repeat(1_000));
    const { put, list } = open(folder);
    await put(ann, 'm1', { parts: ['zebra'] });
    expect(await list(ann, 'zebra')).toEqual(['m1.0']);
  });

  it('is not replaced if it cannot be opened for another reason, and is opened by a later request', async () => {
    const folder = createFolder();
    mkdirSync(join(folder, 'search.db'));
    const { index, path } = open(folder);
    await expect(index.readGeneration()).rejects.toThrow(/EISDIR/);
    expect(existsSync(path)).toBe(true);
    rmdirSync(path);
    expect(await index.readGeneration()).toBeDefined();
  });

  it('is not opened after the index was closed', async () => {
    const { index, list } = open();
    await index.close();
    await expect(list(ann, 'zebra')).rejects.toThrow(StoreError);
    await expect(list(ann, 'zebra')).rejects.toThrow('The search index is closed');
    expect(index.isMissing()).toBe(true);
    await index.close();
  });

  it('is not opened again after the index was closed, also by a request that waits for it to open', async () => {
    const { index, list, path } = open();
    await index.readGeneration();
    await index.close();
    rmSync(path);
    await expect(list(ann, 'zebra')).rejects.toThrow('The search index is closed');
    expect(index.isMissing()).toBe(true);
    const other = open();
    const waiting = other.list(ann, 'zebra');
    await Promise.all([expect(waiting).rejects.toThrow(StoreError), other.index.close()]);
  });

  it('can be opened by another index once the first is closed', async () => {
    const folder = createFolder();
    const first = open(folder);
    await first.put(ann, 'm1', { parts: ['zebra'] });
    const ends = vi.spyOn(Worker.prototype, 'terminate');
    await first.index.close();
    expect(ends).toHaveBeenCalledOnce();
    expect(await open(folder).list(ann, 'zebra')).toEqual(['m1.0']);
  });
});

describe('the worker of a SqliteSearchIndex', () => {
  it('is replaced if it ends, and what waits for it fails', async () => {
    const { put, list } = open();
    await put(ann, 'm1', { parts: ['zebra'] });
    vi.spyOn(Worker.prototype, 'postMessage').mockImplementationOnce(function (this: Worker) {
      void this.terminate();
    });
    const waiting = [list(ann, 'zebra'), list(ann, 'lion')];
    for (const { status, ...result } of await Promise.allSettled(waiting)) {
      expect(status).toBe('rejected');
      expect(result).toHaveProperty('reason.message', 'The search index stopped');
    }
    expect(await list(ann, 'zebra')).toEqual(['m1.0']);
  });

  it('is opened once for simultaneous requests, whose answers it keeps apart', async () => {
    const { put, list } = open();
    await put(ann, 'm1', { parts: ['zebra lion'] });
    await put(ann, 'm2', { parts: ['lion'] });
    const post = vi.spyOn(Worker.prototype, 'postMessage');
    const found = await Promise.all([list(ann, 'zebra'), list(ann, 'lion'), list(ann, 'tiger')]);
    expect(found).toEqual([['m1.0'], ['m1.0', 'm2.0'], []]);
    expect(new Set(post.mock.contexts).size).toBe(1);
  });

  it('has at most 1000 requests that wait', async () => {
    const { index } = open();
    const request = { owner: ann, sources: ['message'], query: parseQuery('zebra'), limit: 1 };
    // Also while it opens.
    const waiting = Array.from({ length: 1_000 }, () => index.find(request));
    await expect(index.find(request)).rejects.toMatchObject({
      code: 'host_busy',
      retryAfterSeconds: 5,
    });
    expect(await Promise.all(waiting)).toHaveLength(1_000);
    expect(await index.find(request)).toEqual([]);
  });

  it('keeps its process running only while a request waits', async () => {
    const isKept = watchKept();
    const { index, list } = open();
    await index.readGeneration();
    expect(isKept()).toBe(false);
    const [first, second] = [list(ann, 'zebra'), list(ann, 'lion')];
    await first;
    expect(isKept()).toBe(true);
    await second;
    expect(isKept()).toBe(false);
  });

  it('does not keep its process running for a request that has failed', async () => {
    const isKept = watchKept();
    const { list } = open();
    expect(await list(ann, 'zebra')).toEqual([]);
    vi.spyOn(Worker.prototype, 'postMessage').mockImplementationOnce(function (this: Worker) {
      void this.terminate();
    });
    await expect(list(ann, 'zebra')).rejects.toThrow('The search index stopped');
    expect(await list(ann, 'zebra')).toEqual([]);
    expect(isKept()).toBe(false);
  });
});

/** Whether the worker that was used last keeps its process running. */
function watchKept(): () => boolean {
  let isKept = true;
  const keep = (value: boolean) => () => {
    isKept = value;
  };
  vi.spyOn(Worker.prototype, 'ref').mockImplementation(keep(true));
  vi.spyOn(Worker.prototype, 'unref').mockImplementation(keep(false));
  return () => isKept;
}
