import { describe, expect, it } from 'vitest';
import { countEventLoopTurns } from '../../../test/support/event-loop-turns.js';
import { openRecordedPostgres } from '../../../test/support/recorded-postgres.js';
import {
  convertParts,
  PostgresSearchIndex,
  type SearchEntry,
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
