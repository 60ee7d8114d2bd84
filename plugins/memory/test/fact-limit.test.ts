import { sql } from 'kysely';
import { describe, expect, it, vi } from 'vitest';
import { usePluginTables } from '../../../packages/host/test/support/plugin-tables.js';
import { engines, newOwner } from '../../../packages/host/test/support/test-database.js';
import { FactSearch } from '../src/fact-search.js';
import { FactStore } from '../src/fact-store.js';
import { memory } from '../src/index.js';

describe.each(engines)('FactStore.add on %s', (engine) => {
  const test = usePluginTables(engine, memory);

  it('keeps 1,000 facts of a user and no more, also when many are added at once', async () => {
    const owner = newOwner();
    await test.database.write(async (tables) => {
      const rows = Array.from({ length: 995 }, (_, i) => {
        const text = `fact ${i}`;
        return {
          id: `${owner} ${i}`,
          owner,
          text,
          created_at: i,
          normalized_text: text,
          words: text,
        };
      });
      for (let i = 0; i < rows.length; i += 100)
        await tables
          .insertInto('memory_facts')
          .values(rows.slice(i, i + 100))
          .execute();
    });
    const stores = [new FactStore(test.database), new FactStore(await test.another())];
    const adding = Array.from({ length: 20 }, (_, i) =>
      stores[i % 2]?.add({ owner, text: `another fact ${i}` }),
    );
    const outcomes = await Promise.allSettled(adding);
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(5);
    expect(await stores[0]?.count({ owner })).toBe(1000);
  });

  it('keeps a fact once, also when it is added twice at once', async () => {
    const owner = newOwner();
    const stores = [new FactStore(test.database), new FactStore(await test.another())];
    const text = 'lives in Nairobi';
    await Promise.all([...stores, ...stores].map((store) => store.add({ owner, text })));
    expect(await stores[0]?.count({ owner })).toBe(1);
  });
});

describe.each(engines)('FactStore.importAll on %s', (engine) => {
  const test = usePluginTables(engine, memory);

  it('stores the facts of one user for another user of the same host', async () => {
    const [owner, other] = [newOwner(), newOwner()];
    const facts = new FactStore(test.database);
    const { id } = await facts.add({ owner, text: 'Sails a small boat' });
    const query = test.database.tables.selectFrom('memory_facts').selectAll();
    const exported = await query.where('owner', '=', owner).execute();
    const rows = exported.map((row) => ({ ...row, created_at: Number(row.created_at) }));
    expect(await facts.importAll(other, rows)).toEqual({ stored: 1, refused: 0 });
    expect(await facts.importAll(other, rows)).toEqual({ stored: 0, refused: 0 });
    await facts.change({ owner: other, id, text: 'Sails a large ketch' });
    const search = new FactSearch(test.database);
    const find = (who: string) => search.find({ owner: who, query: 'sails', limit: 10 });
    expect(await find(other)).toMatchObject([{ id, text: 'Sails a large ketch' }]);
    await facts.remove({ owner: other, id });
    expect(await find(other)).toEqual([]);
    expect(await find(owner)).toMatchObject([{ id, text: 'Sails a small boat' }]);
  });

  it('counts facts that are invalid or beyond the limit as refused, not as known', async () => {
    const facts = new FactStore(test.database);
    const owner = newOwner();
    const rows = Array.from({ length: 1002 }, (_, i) => ({
      ...{ id: `fact-${i}`, text: `Fact number ${i}`, created_at: i, updated_at: null },
      session_id: null,
    }));
    const invalid = { ...rows[0], id: 'long', text: 'x'.repeat(2000) };
    const counts = await facts.importAll(owner, [invalid, ...rows]);
    expect(counts).toEqual({ stored: 1000, refused: 3 });
    expect(await facts.importAll(owner, rows)).toEqual({ stored: 0, refused: 2 });
  });
});

describe.each(engines)('FactSearch.find on %s', (engine) => {
  const test = usePluginTables(engine, memory);

  it('puts facts with rarer, more and other words first, else the newest', async () => {
    const facts = new FactStore(test.database);
    const owner = newOwner();
    const texts = [
      'Likes green tea',
      'Likes black tea',
      'Likes coffee',
      'Likes teaching',
      'Has a boat',
      'Likes green boats, and green tea from the garden of a friend in the north',
    ];
    const rows = texts.map((text, i) => ({ id: `${i}`, text, created_at: i, updated_at: null }));
    await facts.importAll(owner, rows);
    const search = new FactSearch(test.database);
    const find = async (query: string, limit = 10) =>
      (await search.find({ owner, query, limit })).map(({ id }) => id);
    expect(await find('green tea', 1)).not.toEqual(['3']);
    expect((await find('green tea')).slice(0, 2).sort()).toEqual(['0', '5']);
    expect(new Set(await find('green tea'))).toEqual(new Set(['0', '1', '3', '5']));
    expect((await find('coffee likes'))[0]).toBe('2');
    expect(await find('b')).toHaveLength(3);
    expect(await find('teachings')).toEqual([]);
    expect((await find('tea', 10)).length).toBe(4);
  });
});

describe('FactSearch.find on sqlite', () => {
  const test = usePluginTables('sqlite', memory);

  it('reads each character of a fact once, however many words begin alike', async () => {
    const facts = new FactStore(test.database);
    const owner = newOwner();
    const text = Array.from({ length: 20 }, (_, i) => `${'a'.repeat(40)}${i}`).join(' ');
    await facts.add({ owner, text });
    const query = Array.from({ length: 32 }, (_, i) => 'a'.repeat(i + 3)).join(' ');
    const read = vi.spyOn(String.prototype, 'charCodeAt');
    const found = await new FactSearch(test.database).find({ owner, query, limit: 10 });
    const ofFact = read.mock.contexts.filter((context) => String(context) === text).length;
    read.mockRestore();
    expect(found).toMatchObject([{ text }]);
    expect(ofFact).toBeGreaterThan(20);
    expect(ofFact).toBeLessThanOrEqual(text.length + 20);
  });

  it('has no index of the words of all users', async () => {
    const query = sql`select name from sqlite_master where name like 'memory_words%' or type = 'trigger' and tbl_name like 'memory_%'`;
    expect((await query.execute(test.database.tables)).rows).toEqual([]);
  });
});
