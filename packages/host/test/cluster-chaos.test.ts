import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { scale } from '../../../scripts/test-scale.ts';
import { type AnsweringModel, startAnsweringModel } from './support/answering-model.js';
import { ChatLoad, inspectLoad, NOTHING_WRONG } from './support/chat-load.js';
import { type ClusterHost, startHosts } from './support/host-cluster.js';
import { RestartablePostgres } from './support/restartable-postgres.js';
import { type RoundRobinProxy, startRoundRobinProxy } from './support/round-robin-proxy.js';
import { TestUser } from './support/user.js';

const HOSTS = 3;
const CHATS = 6;
const KILLS = scale(240, 2);
/** Shorter and longer than the time after which a host gives PostgreSQL up. */
const STALLS_MS = [200, 1_000, 3_000, 12_000];
const END = { timeout: 180_000 };

let postgres: RestartablePostgres;
let model: AnsweringModel;
let hosts: ClusterHost[];
let balancer: RoundRobinProxy;
beforeAll(async () => {
  postgres = await RestartablePostgres.start();
  model = await startAnsweringModel();
  hosts = await startHosts(HOSTS, { env: { ...model.env, DATABASE_URL: postgres.url } });
  balancer = await startRoundRobinProxy(hosts.map(({ url }) => url));
});
afterAll(async () => {
  balancer?.close();
  await Promise.all((hosts ?? []).map((host) => host.close()));
  model?.close();
  await postgres?.stop();
});

/** Kills hosts one after the other, and starts each again as an init system would. */
async function killHosts(): Promise<void> {
  for (let kill = 0; kill < KILLS; kill++) {
    const victim = hosts[(kill * 7) % HOSTS] as ClusterHost;
    await victim.kill();
    await sleep((kill * 311) % 2_000);
    await victim.start();
    await sleep(1_000 + ((kill * 977) % 3_000));
  }
}

async function disturbPostgres(isOver: () => boolean): Promise<void> {
  for (let i = 0; !isOver(); i++) {
    await sleep(1_500 + ((i * 613) % 2_500));
    if (i % 5 === 4) await postgres.crash();
    else await postgres.freeze(STALLS_MS[i % STALLS_MS.length] as number);
  }
}

it(`${KILLS} kills while PostgreSQL stalls and crashes lose, repeat and overlap nothing`, {
  timeout: 400_000 + KILLS * 60_000,
}, async () => {
  const did = hosts[0]?.did ?? '';
  const users = Array.from({ length: CHATS }, () => new TestUser({ url: balancer.url, did }));
  const load = await ChatLoad.start(users, { sendsWhole: true });
  let isOver = false;
  const disturbing = disturbPostgres(() => isOver);
  await killHosts();
  isOver = true;
  await disturbing;
  const before = load.acknowledged;
  await expect.poll(() => load.acknowledged, END).toBeGreaterThan(before + 10);
  await load.stop();
  await expect.poll(() => load.open, END).toEqual([]);
  expect(await inspectLoad(load, model.calls)).toEqual(NOTHING_WRONG);
  // Otherwise nothing was tested.
  expect(load.countStatus('finished')).toBeGreaterThan(CHATS);
  expect(load.brokenRequests + load.rejoined).toBeGreaterThan(0);
});
