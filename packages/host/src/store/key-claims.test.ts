import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  createTestDatabase,
  newOwner,
  type TestDatabase,
} from '../../test/support/test-database.js';
import type { Database } from './database.js';
import { claimKey, IdempotencyStore } from './idempotency-store.js';
import { openDatabase } from './open-database.js';

describe('idempotency keys', () => {
  let test: TestDatabase;
  let database: Database;
  let keys: IdempotencyStore;
  let now = 1_000;

  beforeAll(async () => {
    test = await createTestDatabase('sqlite');
    database = await openDatabase(test.options);
    keys = new IdempotencyStore({ database, clock: () => now, newId: () => 'id' });
  });
  afterAll(async () => {
    await database.close();
    await test.drop();
  });

  const claim = (owner: string, key: string, runId: string, bodyHash = 'hash') =>
    database.write((tables) =>
      claimKey(tables, { owner, key, bodyHash, runId, expiresAt: now + 100 }, now),
    );

  it('the first request claims a key, and later ones with the same body get its run', async () => {
    const owner = newOwner();
    expect(await claim(owner, 'key', 'first')).toEqual({ state: 'new' });
    expect(await claim(owner, 'key', 'second')).toEqual({ state: 'existing', runId: 'first' });
    expect(await claim(owner, 'key', 'third', 'other')).toEqual({ state: 'conflict' });
    expect(await claim(owner, 'another', 'fourth', 'other')).toEqual({ state: 'new' });
    expect(await claim(newOwner(), 'key', 'foreign', 'other')).toEqual({ state: 'new' });
    expect(await claim(owner, 'key', 'fifth')).toEqual({ state: 'existing', runId: 'first' });
  });

  it('a key is known until it expires, and then claimed by any body', async () => {
    const owner = newOwner();
    await claim(owner, 'key', 'first');
    now += 99;
    expect(await claim(owner, 'key', 'second', 'other')).toEqual({ state: 'conflict' });
    expect(await keys.find({ owner, key: 'key' })).toEqual({
      bodyHash: 'hash',
      runId: 'first',
      isUnanswered: false,
    });
    now += 1;
    expect(await keys.find({ owner, key: 'key' })).toBeUndefined();
    expect(await claim(owner, 'key', 'second', 'other')).toEqual({ state: 'new' });
    expect(await keys.find({ owner, key: 'key' })).toMatchObject({
      bodyHash: 'other',
      runId: 'second',
    });
    // It is kept as long as a new one.
    now += 99;
    expect(await claim(owner, 'key', 'third', 'other')).toMatchObject({ runId: 'second' });
  });

  it('prune deletes the expired keys of all users, and says how many', async () => {
    now += 1_000;
    await keys.prune();
    const [ann, bob] = [newOwner(), newOwner()];
    await claim(ann, 'old', 'run');
    await claim(bob, 'old', 'run');
    now += 50;
    await claim(ann, 'new', 'run');
    now += 49;
    expect(await keys.prune()).toBe(0);
    now += 1;
    expect(await keys.prune()).toBe(2);
    expect(await keys.prune()).toBe(0);
    expect(await keys.find({ owner: ann, key: 'new' })).toBeDefined();
  });
});
