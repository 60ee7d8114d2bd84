import { generateSigner } from '@sibyl/ucan';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { type ClusterHost, startHosts } from './support/host-cluster.js';
import { openSession, stream } from './support/stream.js';
import { startTcpProxy, type TcpProxy } from './support/tcp-proxy.js';
import { createTestDatabase, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

const TIMEOUT = { timeout: 120_000 };
const signer = generateSigner();

let database: TestDatabase;
let proxy: TcpProxy;
let model: ControlledModel;
let hosts: ClusterHost[];
beforeAll(async () => {
  database = await createTestDatabase('postgres');
  proxy = await startTcpProxy(database.env.DATABASE_URL ?? '');
  model = await startControlledModel();
  const env = { ...database.env, ...model.env, DATABASE_URL: proxy.url, OPERATORS: signer.did };
  hosts = await startHosts(2, { env });
}, 120_000);
afterAll(async () => {
  await Promise.all((hosts ?? []).map((host) => host.close()));
  model?.close();
  await proxy?.close();
  await database?.drop();
});

const at = (i: number) => new TestUser(hosts[i] as ClusterHost, signer);
const read = async (i: number, path: string) =>
  (await at(i).request('GET', `/operator/${path}`)).body;

it(
  'GET /operator/hosts shows every host, and one that was killed as lost with its turn',
  TIMEOUT,
  async () => {
    const listStates = async () =>
      (await read(0, 'hosts')).hosts.map(({ state }: { state: string }) => state).sort();
    await expect.poll(listStates, TIMEOUT).toEqual(['running', 'running']);
    const alice = new TestUser(hosts[1] as ClusterHost);
    const live = await stream(alice, await openSession(alice), { message: 'hello' });
    const turn = await model.next();
    turn.say('a part ');
    await live.untilEvent('message');
    expect((await read(0, 'overview')).turns).toMatchObject({ running: 1 });
    await hosts[1]?.kill();
    await live.toEnd().catch(() => undefined);
    await expect.poll(listStates, TIMEOUT).toEqual(['lost', 'running']);
    const overview = await read(0, 'overview');
    expect(overview.hosts).toEqual({ running: 1, lost: 1 });
    expect(overview.problems[0].text).toContain('has ended or is disconnected');
    const listCauses = async () =>
      (await read(0, 'failures')).turns.map(({ cause }: { cause: string }) => cause);
    await expect.poll(listCauses, TIMEOUT).toEqual(['host_lost']);
    await hosts[1]?.start();
    await expect.poll(listStates, TIMEOUT).toEqual(['lost', 'running', 'running']);
  },
);

it('POST /operator/block on one host ends turns of the user on another', TIMEOUT, async () => {
  const alice = new TestUser(hosts[0] as ClusterHost);
  const live = await stream(alice, await openSession(alice), { message: 'hello' });
  await model.next();
  await at(1).request('POST', '/operator/block', { body: { user: alice.did } });
  await live.toEnd();
  expect(live.frames.at(-1)?.data).toMatchObject({ status: 'aborted' });
  expect((await alice.request('GET', '/sessions')).body.code).toBe('caller_blocked');
});

/** A connection that is silent is found out after some time. */
async function readAway(path: string): Promise<string> {
  const { url } = hosts[0] as ClusterHost;
  const signal = AbortSignal.timeout(10_000);
  const reply = await fetch(url + path, { headers: at(0).headers, signal }).catch(() => undefined);
  return (await reply?.text()) ?? '';
}

it(
  'GET /operator/overview and GET /health/ready name the store while PostgreSQL is away',
  TIMEOUT,
  async () => {
    proxy.freeze();
    try {
      await expect
        .poll(() => readAway('/operator/overview'), TIMEOUT)
        .toContain('store_unavailable');
      await expect
        .poll(() => readAway('/health/ready'), TIMEOUT)
        .toMatch(/"store":{"status":"fail/);
    } finally {
      proxy.thaw();
    }
    await expect
      .poll(async () => (await at(0).request('GET', '/operator/overview')).status)
      .toBe(200);
  },
);
