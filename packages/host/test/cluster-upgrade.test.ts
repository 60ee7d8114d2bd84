import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type AnsweringModel, startAnsweringModel } from './support/answering-model.js';
import { ChatLoad, inspectLoad, NOTHING_WRONG } from './support/chat-load.js';
import { type ClusterHost, startHosts } from './support/host-cluster.js';
import { type RoundRobinProxy, startRoundRobinProxy } from './support/round-robin-proxy.js';
import { createTestDatabase, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

/** The bundle of another version, such as `packages/host/dist/bundle/main.js` of another clone; by default this version. */
const PREVIOUS = process.env.SIBYL_TEST_PREVIOUS;
const CHATS = 4;

let database: TestDatabase;
let model: AnsweringModel;
let hosts: ClusterHost[];
let balancer: RoundRobinProxy;
beforeAll(async () => {
  database = await createTestDatabase('postgres');
  model = await startAnsweringModel();
  const env = { ...model.env, ...database.env };
  hosts = await startHosts(3, { env, main: PREVIOUS });
  balancer = await startRoundRobinProxy(hosts.map(({ url }) => url));
});
afterAll(async () => {
  balancer?.close();
  await Promise.all((hosts ?? []).map((host) => host.close()));
  model?.close();
  await database?.drop();
});

it('hosts that are upgraded one after the other under traffic lose, repeat and overlap nothing', async () => {
  const did = hosts[0]?.did ?? '';
  const users = Array.from({ length: CHATS }, () => new TestUser({ url: balancer.url, did }));
  const load = await ChatLoad.start(users, { sendsWhole: true });
  for (const host of hosts) {
    const before = load.acknowledged;
    await host.replace();
    await expect.poll(() => load.acknowledged).toBeGreaterThan(before + CHATS);
    await sleep(500);
  }
  await load.stop();
  await expect.poll(() => load.open).toEqual([]);
  expect(await inspectLoad(load, model.calls)).toEqual(NOTHING_WRONG);
  expect(load.countStatus('finished')).toBeGreaterThan(CHATS);
});
