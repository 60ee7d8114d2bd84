import { describe, expect, it } from 'vitest';
import { usePluginTables } from '../../../packages/host/test/support/plugin-tables.js';
import { engines, newOwner } from '../../../packages/host/test/support/test-database.js';
import { FactStore } from '../src/fact-store.js';
import { memory } from '../src/index.js';

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
