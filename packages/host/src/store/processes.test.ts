import { describe, expect, it } from 'vitest';
import { startBurst } from '../../test/support/store-process.js';
import { createTestDatabase, engines, newOwner } from '../../test/support/test-database.js';
import { openStore, type StoreOptions } from './store.js';

async function listIds(options: StoreOptions, owner: string): Promise<string[]> {
  const store = await openStore(options);
  const ids: string[] = [];
  for (;;) {
    const { sessions } = await store.sessions.list({ owner, limit: 100, offset: ids.length });
    if (sessions.length === 0) break;
    ids.push(...sessions.map(({ sessionId: id }) => id));
  }
  await store.close();
  return ids.sort();
}

describe.each(engines)('processes that share a database on %s', (engine) => {
  it('migrate it together and lose no concurrent writes', async () => {
    const database = await createTestDatabase(engine);
    const owner = newOwner();
    const bursts = [1, 2, 3].map(() =>
      startBurst(database.options, { owner, count: 500, together: 20 }),
    );
    const endings = await Promise.all(bursts.map(({ ended }) => ended));
    expect(endings).toEqual(Array(3).fill({ code: 0, stderr: '' }));
    const acknowledged = bursts.flatMap((burst) => burst.acknowledged).sort();
    expect(acknowledged).toHaveLength(1_500);
    expect(await listIds(database.options, owner)).toEqual(acknowledged);
    await database.drop();
  }, 120_000);

  it('keep every acknowledged write after `kill -9`', async () => {
    const database = await createTestDatabase(engine);
    const owner = newOwner();
    for (const target of [50, 333, 1_000]) {
      const burst = startBurst(database.options, { owner, count: 1e6, together: 25 });
      await burst.untilAcknowledged(target);
      burst.kill();
      expect((await burst.ended).code).toBeNull();
      const stored = new Set(await listIds(database.options, owner));
      expect(burst.acknowledged.filter((id) => !stored.has(id))).toEqual([]);
    }
    await database.drop();
  }, 120_000);
});
