import { describe, expect, it } from 'vitest';
import { usePluginTables } from '../../../packages/host/test/support/plugin-tables.js';
import { engines, newOwner, useStore } from '../../../packages/host/test/support/test-database.js';
import { FactStore } from '../src/fact-store.js';
import { memory } from '../src/index.js';
import { migrations, toScope } from '../src/tables.js';

describe.each(engines)('FactStore.add on %s', (engine) => {
  const test = usePluginTables(engine, memory);

  it('keeps 1,000 facts of a user and no more, also when many are added at once', async () => {
    const owner = newOwner();
    await test.database.write(async (tables) => {
      const rows = Array.from({ length: 995 }, (_, i) => {
        return { id: `${owner} ${i}`, owner, text: `fact ${i}`, created_at: i };
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
    const find = (who: string) => facts.find({ owner: who, query: 'sails', limit: 10 });
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

describe.each(engines)('migrations 0005-ids-per-owner and 0006-normalized-text on %s', (engine) => {
  const test = useStore(engine);

  it('keep facts and their words, and recognize their texts', async () => {
    const request = { plugin: 'memory', plugins: ['memory'] };
    const first = Object.fromEntries(Object.entries(migrations).slice(0, 4));
    const old = await test.store.pluginTables.open({ ...request, migrations: first });
    const owner = newOwner();
    const texts = ['Über Köln gezogen', 'Gone', 'Likes tea'];
    for (const [i, text] of texts.entries()) {
      const row = { id: `${i}`, owner, text, created_at: i, scope: toScope(owner) };
      await old.write((tables) => tables.insertInto('memory_facts').values(row).execute());
    }
    await old.write((tables) => tables.deleteFrom('memory_facts').where('id', '=', '1').execute());
    const facts = new FactStore(await test.store.pluginTables.open({ ...request, migrations }));
    expect(await facts.add({ owner, text: 'ÜBER KÖLN GEZOGEN' })).toMatchObject({ id: '0' });
    expect(await facts.add({ owner, text: 'LIKES TEA' })).toMatchObject({ id: '2' });
    const find = (query: string) => facts.find({ owner, query, limit: 10 });
    expect(await find('tea')).toMatchObject([{ id: '2' }]);
    await facts.change({ owner, id: '2', text: 'Likes coffee' });
    expect(await find('tea')).toEqual([]);
    expect(await find('coffee')).toMatchObject([{ id: '2' }]);
  });
});
