import { request } from 'node:http';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { scale } from '../../../scripts/test-scale.ts';
import { type AnsweringModel, startAnsweringModel } from './support/answering-model.js';
import { ChatLoad, inspectLoad, NOTHING_WRONG } from './support/chat-load.js';
import { type ClusterHost, startHosts } from './support/host-cluster.js';
import { type RoundRobinProxy, startRoundRobinProxy } from './support/round-robin-proxy.js';
import { createTestDatabase, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

const HOSTS = 3;
const KILLS = scale(60, 3);
const CHATS = 8;
/** Confirmed messages between two kills. */
const PROGRESS = 20;
/** The aim is a second; a machine that runs other tests may take several. */
const CLOSED_WITHIN_MS = 20_000;

let database: TestDatabase;
let model: AnsweringModel;
let hosts: ClusterHost[];
let proxy: RoundRobinProxy;
beforeAll(async () => {
  database = await createTestDatabase('postgres');
  model = await startAnsweringModel();
  hosts = await startHosts(HOSTS, { env: { ...database.env, ...model.env } });
  proxy = await startRoundRobinProxy(hosts.map(({ url }) => url));
});
afterAll(async () => {
  proxy?.close();
  await Promise.all((hosts ?? []).map((host) => host.close()));
  model?.close();
  await database?.drop();
});

async function untilAcknowledged(load: ChatLoad, count: number): Promise<void> {
  await expect.poll(() => load.acknowledged, { timeout: 120_000 }).toBeGreaterThan(count);
}

/** Waits until all turns that have not ended now have ended, and returns how long that took. */
async function measureClosing(load: ChatLoad): Promise<number> {
  const killedAt = performance.now();
  const { open } = load;
  const isOpen = ({ status }: (typeof open)[number]) => status === undefined;
  await expect.poll(() => open.filter(isOpen), { timeout: 120_000 }).toEqual([]);
  return performance.now() - killedAt;
}

it(`hosts lose, repeat and overlap nothing in ${KILLS} kills under load without sticky sessions`, {
  timeout: 120_000 + KILLS * 30_000,
}, async () => {
  const did = hosts[0]?.did ?? '';
  const users = Array.from({ length: CHATS }, () => new TestUser({ url: proxy.url, did }));
  const load = await ChatLoad.start(users, { sendsWhole: true });
  let slowest = 0;
  for (let kill = 0; kill < KILLS; kill++) {
    await untilAcknowledged(load, load.acknowledged + PROGRESS);
    const victim = hosts[kill % HOSTS] as ClusterHost;
    await victim.kill();
    slowest = Math.max(slowest, await measureClosing(load));
    await victim.start();
  }
  await untilAcknowledged(load, load.acknowledged + PROGRESS);
  await load.stop();
  await expect.poll(() => load.open, { timeout: 120_000 }).toEqual([]);
  expect(await inspectLoad(load, model.calls)).toEqual(NOTHING_WRONG);
  const total = load.chats.flatMap(({ sent }) => sent).length;
  const interrupted = load.countStatus('interrupted');
  expect(load.countStatus('finished') + interrupted).toBe(total);
  // A kill interrupts at most the running turn of each session.
  expect(interrupted).toBeLessThanOrEqual(KILLS * CHATS);
  expect(slowest).toBeLessThan(CLOSED_WITHIN_MS);
  // Otherwise the kills missed the load, and nothing was tested.
  expect(interrupted).toBeGreaterThan(0);
  expect(load.rejoined + load.brokenRequests).toBeGreaterThan(0);
});

it('the space of an upload is free soon after its host was killed', {
  timeout: 120_000,
}, async () => {
  const [killed, other] = hosts as [ClusterHost, ClusterHost];
  const user = new TestUser(other);
  const readUsed = async () => (await user.request('GET', '/files')).body.usedBytes;
  const size = 50_000_000;
  const headers = { ...user.headers, 'content-length': size };
  const upload = request(`${killed.url}/files?name=a.bin`, { method: 'POST', headers });
  upload.on('error', () => undefined);
  upload.write(Buffer.alloc(1_000_000));
  await expect.poll(readUsed, { timeout: 30_000 }).toBe(size);
  await killed.kill();
  await expect.poll(readUsed, { timeout: 30_000 }).toBe(0);
  await killed.start();
});
