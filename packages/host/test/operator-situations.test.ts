import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { generateSigner } from '@sibyl/ucan';
import { afterEach, describe, expect, it } from 'vitest';
import { readShownSeries } from './support/dashboard.js';
import { findFreePort } from './support/free-port.js';
import { startHost } from './support/host.js';
import { untilListening } from './support/process.js';
import { checkSmallDisk, SmallDisk } from './support/small-disk.js';
import { openSession } from './support/stream.js';
import { TestUser } from './support/user.js';

const TIMEOUT = { timeout: 120_000 };
const signer = generateSigner();
const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const clean of cleanups.splice(0).reverse()) await clean();
});

/** A host with a dashboard and an operator. */
async function start(env: Record<string, string>) {
  const port = await findFreePort();
  const host = await startHost({
    hasTwins: false,
    env: { OPERATORS: signer.did, METRICS_PORT: String(port), ...env },
  });
  cleanups.push(() => host.close());
  const operator = new TestUser(host, signer);
  return {
    alice: new TestUser(host),
    read: async (path: string) => (await operator.request('GET', `/operator/${path}`)).body,
    readSeries: () => readShownSeries(port),
  };
}

const useModel = (url: string) => ({
  MODEL: 'openai-compatible/test',
  MODEL_BASE_URL: url,
  MODEL_API_KEY: 'sk-secret-key-of-the-operator',
});

async function startModelWithKeys(): Promise<string> {
  const server = createServer((_, response) => {
    response.writeHead(401, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ error: { message: 'Incorrect API key provided' } }));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  cleanups.push(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
}

describe('GET /operator/overview and the Grafana dashboard show', () => {
  const failures = [
    {
      name: 'a model that is down',
      url: async () => `http://127.0.0.1:${await findFreePort()}/v1`,
      cause: 'connection_refused',
      text: /could not be reached: openai-compatible\/test: .*refuses connections \(127\.0\.0\.1 ECONNREFUSED/,
    },
    {
      name: 'a wrong key',
      url: startModelWithKeys,
      cause: 'wrong_key',
      text: /rejected the key: openai-compatible\/test: .*rejects the key \(127\.0\.0\.1 401 .*Incorrect API key provided/,
    },
    {
      name: 'a name that does not resolve',
      url: async () => 'http://model.invalid/v1',
      cause: 'dns',
      text: /could not be reached: openai-compatible\/test: .*cannot be resolved \(model\.invalid E/,
    },
  ];
  for (const { name, url, cause, text } of failures)
    it(name, TIMEOUT, async () => {
      const { alice, read, readSeries } = await start(useModel(await url()));
      const began = new Date().toISOString();
      const before = await readSeries();
      const body = { message: 'hello' };
      const path = `/messages/${await openSession(alice)}`;
      expect((await alice.request('POST', path, { body })).status).toBe(503);
      const { problems, failures: turns } = await read('overview');
      expect(problems).toMatchObject([{ check: 'model', text: expect.stringMatching(text) }]);
      expect(problems[0].since > began).toBe(true);
      expect(turns).toMatchObject([{ cause, count: 1 }]);
      const after = await readSeries();
      const failed = `sibyl_model_failures_total{model="openai-compatible/test",cause="${cause}"}`;
      expect([before.get(failed), after.get(failed)]).toEqual([undefined, expect.any(Number)]);
      expect(after.get(`sibyl_turn_failures_total{cause="${cause}"}`)).toBe(1);
      expect(after.get('sibyl_ready{check="model"}')).toBe(0);
    });

  it('a user who floods the host', TIMEOUT, async () => {
    const { alice, read, readSeries } = await start({ RATE_LIMIT_PER_MINUTE: '20' });
    const before = await readSeries();
    for (let i = 0; i < 40; i++) await alice.request('GET', '/sessions');
    const { limited } = await read('overview');
    expect(limited).toMatchObject([{ did: alice.did, lastAt: expect.any(String) }]);
    expect(limited[0].count).toBeGreaterThan(5);
    const { users } = await read('users');
    expect(users).toMatchObject([{ user: alice.did, limited: limited[0].count }]);
    const after = await readSeries();
    const series = 'sibyl_rate_limited_total{kind="caller"}';
    expect(after.get(series)).toBeGreaterThan(before.get(series) ?? 0);
    expect(after.get('sibyl_errors_total{code="rate_limited"}')).toBeGreaterThan(5);
  });
});

const fault = checkSmallDisk();
if (fault) process.stderr.write(`the full disk of operator-situations is skipped: ${fault}\n`);

it.skipIf(fault)(
  'GET /operator/overview and the Grafana dashboard show a full disk',
  TIMEOUT,
  async () => {
    const dataDir = await mkdtemp(join(tmpdir(), 'sibyl-operators-'));
    const port = await findFreePort();
    const limits = { RATE_LIMIT_PER_MINUTE: '1000000', RATE_LIMIT_ANONYMOUS_PER_MINUTE: '1000000' };
    const own = { OPERATORS: signer.did, METRICS_PORT: String(port), DISK_MIN_FREE: '0' };
    const disk = await SmallDisk.mount(dataDir, 16);
    cleanups.push(async () => disk.close());
    const host = disk.run({ PORT: '0', FEATURES: 'memory=false', ...limits, ...own });
    cleanups.push(() => rm(dataDir, { recursive: true, force: true }));
    cleanups.push(async () => {
      host.child.kill('SIGKILL');
      await host.ended;
    });
    const url = await untilListening(host);
    const card = (await (await fetch(`${url}/.well-known/oracle.json`)).json()) as { did: string };
    const oracle = { url, did: card.did };
    const [alice, operator] = [new TestUser(oracle), new TestUser(oracle, signer)];
    const before = await readShownSeries(port);
    const readProblems = async () =>
      (await operator.request('GET', '/operator/overview')).body.problems;
    expect(await readProblems()).toEqual([]);
    disk.fill();
    // SQLite's log may have room left that it has claimed before.
    const open = async () => (await alice.request('POST', '/sessions')).status;
    await expect.poll(open, { ...TIMEOUT, interval: 1 }).toBe(503);
    await expect.poll(readProblems, TIMEOUT).toMatchObject([
      {
        check: 'store',
        text: expect.stringMatching(/The disk of the database is full: .*full/),
        since: expect.any(String),
      },
    ]);
    const { requests } = (await operator.request('GET', '/operator/failures')).body;
    expect(requests).toMatchObject([{ code: 'store_unavailable' }]);
    const after = await readShownSeries(port);
    expect(after.get('sibyl_ready{check="store"}')).toBe(0);
    const full = 'sibyl_store_failures_total{kind="full"}';
    expect([before.get(full), after.get(full)]).toEqual([0, expect.any(Number)]);
    expect(after.get(full)).toBeGreaterThan(0);
    const free = 'sibyl_disk_free_bytes';
    // Read once a second.
    const readFree = async () => (await readShownSeries(port)).get(free);
    await expect.poll(readFree, TIMEOUT).toBeLessThan((before.get(free) ?? 0) / 10);
    disk.free();
    await expect.poll(readProblems, TIMEOUT).toEqual([]);
  },
);
