import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { ERASE_ABILITY, toOracleResource } from '@sibyl/protocol/decisions';
import { afterAll, afterEach, expect, it } from 'vitest';
import { openDatabase } from '../src/store/open-database.js';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { findText } from './support/database-scan.js';
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

/** Erases a user at the first host. */
function erase(user: TestUser) {
  const capability = { can: ERASE_ABILITY, with: toOracleResource(hosts.a.did) };
  const invocation = user.delegate({ capabilities: [capability], ttlSeconds: 300 });
  return user.at(hosts.a).request('DELETE', '/me', { body: { invocation } });
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
