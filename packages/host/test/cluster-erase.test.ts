import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { ERASE_ABILITY, toOracleResource } from '@sibyl/protocol/decisions';
import { sql } from 'kysely';
import pg from 'pg';
import { afterAll, afterEach, expect, it, onTestFinished } from 'vitest';
import { openDatabase } from '../src/store/open-database.js';
import { OWNER_LOCK_CLASS } from '../src/store/postgres/owner-queue.js';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { findText } from './support/database-scan.js';
import { startHosts } from './support/host-cluster.js';
import { useHostPair } from './support/host-pair.js';
import { joinSession } from './support/session-socket.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

let model: ControlledModel;
const hosts = useHostPair(async () => {
  model = await startControlledModel();
  return { env: model.env };
});
afterAll(() => model.close());
afterEach(() => {
  hosts.busProxy.unmute();
  hosts.busProxy.reconnect();
});

/** Erases a user, at the first host unless another one is named. */
function erase(user: TestUser, host: TestUser['host'] = hosts.a) {
  const capability = { can: ERASE_ABILITY, with: toOracleResource(hosts.a.did) };
  const invocation = user.delegate({ capabilities: [capability], ttlSeconds: 300 });
  return user.at(host).request('DELETE', '/me', { body: { invocation } });
}

/** A transaction that does not end, as that of a frozen host; the returned function ends it. */
async function hold(statement: string, values: readonly unknown[]): Promise<() => Promise<void>> {
  const client = new pg.Client({ connectionString: hosts.database.env.DATABASE_URL });
  await client.connect();
  await client.query('begin');
  await client.query(statement, [...values]);
  let ending: Promise<void> | undefined;
  const end = () => (ending ??= client.end());
  onTestFinished(end);
  return end;
}

/** How many statements wait for a lock. */
async function countWaiting(): Promise<number> {
  const database = await openDatabase(hosts.database.options);
  try {
    const { rows } = await sql<{ count: number }>`select count(*) as count from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock' and query like 'delete%'`.execute(
      database.tables,
    );
    return Number(rows[0]?.count);
  } finally {
    await database.close();
  }
}

/** Where the database contains the DID of a user. */
async function findTraces({ did }: TestUser): Promise<readonly string[]> {
  const database = await openDatabase(hosts.database.options);
  try {
    return await findText(database, did);
  } finally {
    await database.close();
  }
}

it('DELETE /me ends an import at another host', async () => {
  const there = new TestUser(hosts.b);
  const headers = { ...there.headers, 'content-type': 'application/json' };
  const request = httpRequest(`${hosts.b.url}/me/import`, { method: 'POST', headers });
  const reply = once(request, 'response');
  request.write('[');
  await expect
    .poll(() => readdir(join(hosts.b.dataDir, 'imports')).catch(() => []))
    .toHaveLength(1);
  expect((await erase(there)).status).toBe(200);
  const [response] = await reply;
  expect(response.statusCode).toBe(400);
  request.destroy();
  expect(await readdir(join(hosts.b.dataDir, 'imports'))).toEqual([]);
});

it.each([
  ['ends the turns and sockets of another host, which leave nothing behind', true],
  ['ends the turns even if no notification arrives', false],
])('DELETE /me %s', async (_, notifies) => {
  const there = new TestUser(hosts.b);
  const sessionId = await openSession(there);
  const socket = await joinSession(there, sessionId);
  const live = await stream(there, sessionId, { message: 'one' });
  const turn = await model.next();
  turn.say('half');
  await live.untilEvent('message');
  const queued = await stream(there, sessionId, { message: 'two' });
  if (!notifies) hosts.busProxy.mute();
  expect((await erase(there)).status).toBe(200);
  await turn.left;
  // A host that notices it only by the deleted rows has no end to send.
  await Promise.allSettled([live.toEnd(), queued.toEnd()]);
  if (notifies) await socket.until('closing');
  expect(await findTraces(there)).toEqual([]);
  expect(model.arrived).toBe(0);
});

it('DELETE /me closes the sockets of a host that was disconnected, once it is back', async () => {
  const there = new TestUser(hosts.b);
  const socket = await joinSession(there, await openSession(there));
  const other = new TestUser(hosts.b);
  const kept = await joinSession(other, await openSession(other));
  hosts.busProxy.disconnect();
  expect((await erase(there)).status).toBe(200);
  hosts.busProxy.reconnect();
  await socket.until('closing', ({ reason }) => reason === 'session_deleted');
  await expect.poll(() => findTraces(there)).toEqual([]);
  expect(kept.all('closing')).toEqual([]);
});

it('DELETE /me continues in the background if a frozen host keeps the user locked, and says so', {
  timeout: 60_000,
}, async () => {
  const user = new TestUser(hosts.a);
  await openSession(user);
  const lock = 'select pg_advisory_xact_lock($1, hashtext($2))';
  const release = await hold(lock, [OWNER_LOCK_CLASS, user.did]);
  const reply = await erase(user);
  expect(reply).toMatchObject({ status: 503, body: { code: 'store_unavailable' } });
  expect(reply.body.message).toContain('continues by itself');
  expect(reply.headers.has('retry-after')).toBe(true);
  await release();
  await expect.poll(() => findTraces(user), { timeout: 30_000 }).toEqual([]);
  // It has ended: what is stored now stays.
  await openSession(user);
  expect((await erase(user)).status).toBe(200);
});

it('another host continues DELETE /me of a host that was killed in the middle', {
  timeout: 120_000,
}, async () => {
  const [killed] = await startHosts(1, { env: { ...hosts.database.env, ...model.env } });
  if (!killed) throw new Error('no host');
  onTestFinished(() => killed.close());
  const user = new TestUser(hosts.b);
  const sessionId = await openSession(user);
  const live = await stream(user, sessionId, { message: 'one' });
  (await model.next()).answer('yes');
  await live.toEnd();
  const release = await hold('select 1 from sessions where owner = $1 for update', [user.did]);
  const erasing = erase(user, killed).catch(() => 'killed');
  await expect.poll(countWaiting, { timeout: 30_000 }).toBeGreaterThan(0);
  await killed.kill();
  expect(await erasing).toBe('killed');
  expect(await findTraces(user)).toContain('sessions.owner');
  await release();
  await expect.poll(() => findTraces(user), { timeout: 30_000 }).toEqual([]);
});
