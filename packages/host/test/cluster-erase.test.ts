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
afterEach(() => hosts.busProxy.unmute());

it('DELETE /me ends an import at another host', async () => {
  const there = new TestUser(hosts.b);
  const headers = { ...there.headers, 'content-type': 'application/json' };
  const request = httpRequest(`${hosts.b.url}/me/import`, { method: 'POST', headers });
  const reply = once(request, 'response');
  request.write('[');
  await expect
    .poll(() => readdir(join(hosts.b.dataDir, 'imports')).catch(() => []))
    .toHaveLength(1);
  const capability = { can: ERASE_ABILITY, with: toOracleResource(hosts.a.did) };
  const invocation = there.delegate({ capabilities: [capability], ttlSeconds: 300 });
  const erased = await there.at(hosts.a).request('DELETE', '/me', { body: { invocation } });
  expect(erased.status).toBe(200);
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
  const here = there.at(hosts.a);
  const sessionId = await openSession(there);
  const socket = await joinSession(there, sessionId);
  const live = await stream(there, sessionId, { message: 'one' });
  const turn = await model.next();
  turn.say('half');
  await live.untilEvent('message');
  const queued = await stream(there, sessionId, { message: 'two' });
  if (!notifies) hosts.busProxy.mute();
  const capability = { can: ERASE_ABILITY, with: toOracleResource(hosts.a.did) };
  const invocation = there.delegate({ capabilities: [capability], ttlSeconds: 300 });
  const { status } = await here.request('DELETE', '/me', { body: { invocation } });
  expect(status).toBe(200);
  await turn.left;
  // A host that notices it only by the deleted rows has no end to send.
  await Promise.allSettled([live.toEnd(), queued.toEnd()]);
  if (notifies) await socket.until('closing');
  const database = await openDatabase(hosts.database.options);
  try {
    expect(await findText(database, there.did)).toEqual([]);
  } finally {
    await database.close();
  }
  expect(model.arrived).toBe(0);
});
