import { generateSigner } from '@sibyl/ucan';
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { readShownSeries } from './support/dashboard.js';
import { findFreePort } from './support/free-port.js';
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
let metricsPort: string;
beforeAll(async () => {
  database = await createTestDatabase('postgres');
  proxy = await startTcpProxy(database.env.DATABASE_URL ?? '');
  model = await startControlledModel();
  const env = { ...database.env, ...model.env, DATABASE_URL: proxy.url, OPERATORS: signer.did };
  hosts = await startHosts(2, { env });
  // The port of the metrics differs, so it is set when the host starts again.
  metricsPort = String(await findFreePort());
  await hosts[0]?.kill();
  await hosts[0]?.start({ METRICS_PORT: metricsPort });
}, 120_000);
afterAll(async () => {
  await Promise.all((hosts ?? []).map((host) => host.close()));
  model?.close();
  await proxy?.close();
  await database?.drop();
});

const at = (i: number) => new TestUser(hosts[i] as ClusterHost, signer);
/** Reads a stream until it has sent this text. */
async function untilText(response: Response, text: string): Promise<void> {
  let received = '';
  const decoder = new TextDecoder();
  for await (const chunk of response.body ?? []) {
    received += decoder.decode(chunk, { stream: true });
    if (received.includes(text)) return;
  }
  throw new Error(`The stream ended: ${received}`);
}

const countRunning = async () => (await read(0, 'overview')).hosts.running;

const read = async (i: number, path: string) =>
  (await at(i).request('GET', `/operator/${path}`)).body;

it(
  'GET /operator/hosts shows every host, and one that was killed as lost with its turn',
  TIMEOUT,
  async () => {
    await expect.poll(countRunning, TIMEOUT).toBe(2);
    await expect.poll(async () => (await readShownSeries(metricsPort)).get('sibyl_hosts')).toBe(2);
    const { lost } = (await read(0, 'overview')).hosts;
    const alice = new TestUser(hosts[1] as ClusterHost);
    const live = await stream(alice, await openSession(alice), { message: 'hello' });
    const turn = await model.next();
    turn.say('a part ');
    await live.untilEvent('message');
    expect((await read(0, 'overview')).turns).toMatchObject({ running: 1 });
    // The turn is also a task of A2A, which a client of another host follows.
    const task = `${hosts[0]?.url}/a2a/tasks/${live.runId}`;
    const headers = { ...alice.headers, 'a2a-version': '1.0' };
    const followed = await fetch(`${task}:subscribe`, { method: 'POST', headers });
    expect(followed.status).toBe(200);
    const readTask = async () => (await fetch(task, { headers })).text();
    await expect.poll(readTask).toContain('a part ');
    const changes = await fetch(`${hosts[0]?.url}/sessions/events`, { headers: alice.headers });
    await hosts[1]?.kill();
    await untilText(changes, '"turn_ended"');
    expect(await followed.text()).toMatch(/"a part ".*TASK_STATE_FAILED/s);
    expect(await (await fetch(task, { headers })).json()).toMatchObject({
      status: { state: 'TASK_STATE_FAILED' },
      artifacts: [{ parts: [{ text: 'a part ' }] }],
    });
    await live.toEnd().catch(() => undefined);
    await expect.poll(countRunning, TIMEOUT).toBe(1);
    const overview = await read(0, 'overview');
    expect(overview.hosts).toEqual({ running: 1, lost: lost + 1, unknown: 0 });
    expect(overview.problems).toContainEqual({
      hostId: expect.any(String),
      check: 'lost',
      text: 'The host has ended or is disconnected',
      since: expect.any(String),
    });
    const listCauses = async () =>
      (await read(0, 'failures')).turns.map(({ cause }: { cause: string }) => cause);
    await expect.poll(listCauses, TIMEOUT).toEqual(['host_lost']);
    const after = await readShownSeries(metricsPort);
    expect(after.get('sibyl_hosts')).toBe(1);
    expect(after.get('sibyl_takeovers_total{outcome="closed"}')).toBe(1);
    await hosts[1]?.start();
    await expect.poll(countRunning, TIMEOUT).toBe(2);
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

/** As `sibyl operators add` and `sibyl users block` do, from another process. */
async function insert(table: 'operators' | 'blocked_users', did: string): Promise<void> {
  const client = new pg.Client({ connectionString: database.env.DATABASE_URL });
  await client.connect();
  await client.query(`insert into ${table} (owner, created_at) values ($1, $2)`, [did, Date.now()]);
  await client.end();
}

const login = (token: string) => ({ authorization: `Bearer ${token}`, 'x-auth-type': 'ucan' });

/** The status of a request with exactly this login. */
async function requestWith(token: string, method: string, path: string): Promise<number> {
  // A login is a delegation too, so its user can revoke it.
  const headers = { ...login(token), 'x-ucan-delegation': token };
  return (await fetch(`${(hosts[0] as ClusterHost).url}${path}`, { method, headers })).status;
}

it(
  'operators log in and see what is wrong while PostgreSQL is away; no other caller gets in',
  TIMEOUT,
  async () => {
    const host = hosts[0] as ClusterHost;
    const added = new TestUser(host);
    const [stranger, blocked] = [new TestUser(host), new TestUser(host)];
    await insert('operators', added.did);
    await insert('operators', blocked.did);
    await insert('blocked_users', blocked.did);
    const status = async (user: TestUser) =>
      (await user.request('GET', '/operator/overview')).status;
    await expect.poll(() => status(added), TIMEOUT).toBe(200);
    await expect.poll(() => status(blocked), TIMEOUT).toBe(403);
    const revoked = added.mint(800);
    const readRevoked = () => requestWith(revoked, 'GET', '/operator/overview');
    expect(await readRevoked()).toBe(200);
    expect(await requestWith(revoked, 'DELETE', '/delegation')).toBe(200);
    expect(await readRevoked()).toBe(401);
    const began = new Date().toISOString();
    // Longer than the time after which a host reads its lists again.
    await new Promise((resolve) => setTimeout(resolve, 8_000));
    proxy.freeze();
    try {
      const readOverview = async () => (await added.request('GET', '/operator/overview')).body;
      await expect
        .poll(async () => (await readOverview()).problems, TIMEOUT)
        .toContainEqual(
          expect.objectContaining({ check: 'store', text: expect.stringContaining('database') }),
        );
      const overview = await readOverview();
      const [problem] = overview.problems;
      expect(problem.since > began).toBe(true);
      expect(overview).toMatchObject({ turns: null, today: null, failures: null });
      expect(overview.hosts).toMatchObject({ running: 1 });
      expect(overview.hosts.unknown).toBeGreaterThanOrEqual(1);
      const { hosts: known } = (await added.request('GET', '/operator/hosts')).body;
      const [, other] = known;
      expect(other).toMatchObject({ state: 'unknown', version: expect.any(String) });
      expect((await at(0).request('GET', '/operator/plugins')).status).toBe(200);
      expect((await at(0).request('GET', '/operator/turns')).body.code).toBe('store_unavailable');
      expect(await status(stranger)).toBe(403);
      expect(await status(blocked)).toBe(403);
      expect(await readRevoked()).toBe(401);
      const block = { body: { user: stranger.did } };
      expect((await added.request('POST', '/operator/block', block)).status).toBe(503);
      await expect
        .poll(
          async () => (await readShownSeries(metricsPort)).get('sibyl_ready{check="store"}'),
          TIMEOUT,
        )
        .toBe(0);
      // A figure that cannot be read is left out instead of wrong.
      expect((await readShownSeries(metricsPort)).has('sibyl_paused_turns')).toBe(false);
    } finally {
      proxy.thaw();
    }
    const isHealthy = async () => {
      const { problems } = (await added.request('GET', '/operator/overview')).body;
      return problems?.every(({ check }: { check: string }) => check === 'lost');
    };
    await expect.poll(isHealthy, TIMEOUT).toBe(true);
  },
);
