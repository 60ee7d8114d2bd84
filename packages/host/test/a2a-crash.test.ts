import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { DatabaseSync } from 'node:sqlite';
import { json } from 'node:stream/consumers';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { scale } from '../../../scripts/test-scale.ts';
import { runStatement } from './support/cluster.js';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { ClusterHost, startHosts } from './support/host-cluster.js';
import { createTestDatabase, engines } from './support/test-database.js';
import { TestUser } from './support/user.js';

interface Push {
  readonly id: unknown;
  readonly task: { readonly id: string; readonly status: { readonly state: string } };
}

let model: ControlledModel;
let received: Push[] = [];
/** Answers a notification. */
let answer = (response: ServerResponse) => void response.end();
const receiver = createServer(async (request, response) => {
  const { task } = (await json(request)) as Push;
  received.push({ id: request.headers['webhook-id'], task });
  answer(response);
});
let address: string;
beforeAll(async () => {
  model = await startControlledModel();
  receiver.listen(0, '127.0.0.1');
  await once(receiver, 'listening');
  address = `127.0.0.1:${(receiver.address() as AddressInfo).port}`;
});
beforeEach(() => {
  received = [];
  answer = (response) => void response.end();
});
afterAll(() => {
  model.close();
  receiver.closeAllConnections();
  receiver.close();
});

/** Starts a task whose end is posted to the receiver; returns its id. */
async function sendTask(user: TestUser): Promise<string> {
  const reply = await user.request('POST', '/a2a/message:send', {
    headers: { 'a2a-version': '1.0' },
    body: {
      message: { messageId: randomUUID(), role: 'ROLE_USER', parts: [{ text: 'Hello' }] },
      configuration: {
        returnImmediately: true,
        taskPushNotificationConfig: { url: `http://${address}/` },
      },
    },
  });
  expect(reply.status).toBe(200);
  return reply.body.task.id;
}

const readStates = (taskId: string) =>
  received.filter(({ task }) => task.id === taskId).map(({ task }) => task.status.state);

describe.each(engines)('a push notification of a host that is killed, on %s', (engine) => {
  async function start() {
    const database = await createTestDatabase(engine);
    const env = { ...model.env, ...database.env, OUTGOING_ALLOW: address };
    const host = await ClusterHost.create({ env });
    onTestFinished(async () => {
      await host.close();
      await database.drop();
    });
    await host.start();
    const run = async (statement: string) => {
      const url = database.env.DATABASE_URL;
      if (url) return runStatement(url, statement);
      const file = new DatabaseSync(`${host.dataDir}/sibyl.db`, { timeout: 10_000 });
      const rows = file.prepare(statement).all();
      file.close();
      return rows;
    };
    return { host, run, alice: new TestUser(host) };
  }

  it('is sent again under the same id if its receiver has not answered, and not once it has', async () => {
    const { host, run, alice } = await start();
    answer = () => {};
    const id = await sendTask(alice);
    (await model.next()).answer('Hi.');
    await expect.poll(() => readStates(id), { timeout: 30_000 }).toEqual(['TASK_STATE_COMPLETED']);
    await host.kill();
    // At once: this is long after what the host had in hand would be due.
    await run('update a2a_push_configs set due_at = 9e12');
    answer = (response) => void response.end();
    await host.start();
    await expect.poll(() => readStates(id).length, { timeout: 60_000 }).toBe(2);
    const isDone = async () => (await run('select due_at from a2a_push_configs'))[0];
    await expect.poll(isDone, { timeout: 30_000 }).toEqual({ due_at: null });
    expect(received).toHaveLength(2);
    expect(received[1]).toMatchObject({ id: received[0]?.id });
  });

  it('says that its task was interrupted', async () => {
    const { host, alice } = await start();
    const id = await sendTask(alice);
    await model.next();
    await host.kill();
    await host.start();
    await expect.poll(() => readStates(id), { timeout: 60_000 }).toEqual(['TASK_STATE_FAILED']);
  });
});

const KILLS = scale(10, 3);
const TASKS = 6;

it(`push notifications arrive for every task in ${KILLS} kills of hosts`, {
  timeout: 120_000 + KILLS * 60_000,
}, async () => {
  const database = await createTestDatabase('postgres');
  const env = { ...model.env, ...database.env, OUTGOING_ALLOW: address };
  const hosts = await startHosts(2, { env });
  onTestFinished(async () => {
    for (const host of hosts) await host.close();
    await database.drop();
  });
  const ids: string[] = [];
  for (let kill = 0; kill < KILLS; kill++) {
    const [victim, other] = (kill % 2 === 0 ? hosts : hosts.toReversed()) as [
      ClusterHost,
      ClusterHost,
    ];
    const sent = Array.from({ length: TASKS }, (_, i) =>
      sendTask(new TestUser(i % 2 === 0 ? victim : other)),
    );
    const turns = await Promise.all(sent.map(() => model.next()));
    const begun = await Promise.all(sent);
    ids.push(...begun);
    for (const turn of turns) turn.answer('Hi.');
    const known = received.length;
    await expect.poll(() => received.length, { timeout: 60_000 }).toBeGreaterThan(known);
    await victim.kill();
    await victim.start();
  }
  const hasEnded = (id: string) => readStates(id).length > 0;
  await expect.poll(() => ids.filter((id) => !hasEnded(id)), { timeout: 60_000 }).toEqual([]);
  // What was sent twice, because its host was killed before it knew the answer, has the same id.
  for (const id of ids)
    expect(new Set(received.filter(({ task }) => task.id === id).map((push) => push.id)).size).toBe(
      1,
    );
});
