import pg from 'pg';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { startHost } from '../../../test/support/host.js';
import { createTestDatabase, type TestDatabase } from '../../../test/support/test-database.js';
import { TestUser } from '../../../test/support/user.js';
import { openStore } from '../store.js';
import { StoreError } from '../store-errors.js';
import { OWNER_LOCK_CLASS } from './owner-queue.js';

const [alice, bob] = ['did:a', 'did:b'].map((owner) => ({ owner, oracleDid: 'did:o' })) as [
  { owner: string; oracleDid: string },
  { owner: string; oracleDid: string },
];

let database: TestDatabase;
let other: pg.Client;
beforeEach(async () => {
  database = await createTestDatabase('postgres');
  other = new pg.Client({ connectionString: database.options.databaseUrl });
  await other.connect();
});
afterEach(async () => {
  await other.end();
  await database.drop();
});

/** Keeps every write of an owner from beginning, as a host does that hangs in the middle of one. */
async function holdLock(owner: string): Promise<{ release(): Promise<unknown> }> {
  const args = [OWNER_LOCK_CLASS, owner];
  await other.query('select pg_advisory_lock($1::int, hashtext($2))', args);
  return {
    release: () => other.query('select pg_advisory_unlock($1::int, hashtext($2))', args),
  };
}

const countSessions = async (store: Awaited<ReturnType<typeof openStore>>, owner: string) =>
  (await store.sessions.list({ owner, limit: 1, offset: 0 })).total;

it('OwnerQueue fails writes that cannot begin in time, and never runs them', async () => {
  const store = await openStore({ ...database.options, writeWaitMs: 300 });
  const lock = await holdLock(alice.owner);
  const creating = Array.from({ length: 5 }, () => store.sessions.createWithin(1000, alice));
  const outcomes = await Promise.allSettled(creating);
  expect(outcomes.map((each) => each.status === 'rejected' && each.reason)).toEqual(
    creating.map(() => expect.any(StoreError)),
  );
  await lock.release();
  await vi.waitFor(() => store.sessions.createWithin(1000, alice), { timeout: 60_000 });
  expect(await countSessions(store, alice.owner)).toBe(1);
  await store.close();
});

it('OwnerQueue queues 1,000 writes of one owner, and rejects further ones with 429', async () => {
  const store = await openStore({ ...database.options, writeWaitMs: 600_000 });
  const lock = await holdLock(alice.owner);
  const accepted = Array.from({ length: 1001 }, () => store.sessions.createWithin(2000, alice));
  await expect(store.sessions.createWithin(1000, alice)).rejects.toMatchObject({
    code: 'rate_limited',
    retryAfterSeconds: expect.any(Number),
  });
  await store.sessions.createWithin(1000, bob);
  await lock.release();
  await Promise.all(accepted);
  expect(await countSessions(store, alice.owner)).toBe(1001);
  await store.close();
});

it('POST /sessions answers 503 store_unavailable when it cannot begin in STORE_WAIT_SECONDS', async () => {
  const host = await startHost({ env: { ...database.env, STORE_WAIT_SECONDS: '1' } });
  const user = new TestUser(host);
  const lock = await holdLock(user.did);
  const answers = await Promise.all([1, 2, 3].map(() => user.request('POST', '/sessions')));
  for (const answer of answers) {
    expect(answer.status).toBe(503);
    expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(answer.body).toMatchObject({ code: 'store_unavailable' });
  }
  await lock.release();
  await host.close();
});
