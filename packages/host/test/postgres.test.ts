import { connect, createServer, type Server, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { findFreePort } from './support/free-port.js';
import { startHost, type TestHost } from './support/host.js';
import { join, openSession, stream } from './support/stream.js';
import { createTestDatabase, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

const oracle = { ORACLE_MNEMONIC: 'the oracle of these tests' };
let database: TestDatabase;
let proxy: DatabaseProxy;
let model: ControlledModel;
let host: TestHost;
beforeAll(async () => {
  database = await createTestDatabase('postgres');
  proxy = await startProxy(database.options.databaseUrl ?? '');
  model = await startControlledModel();
  host = await startHost({
    env: { ...oracle, DATABASE_URL: proxy.url, STORE_WAIT_SECONDS: '600', ...model.env },
  });
});
afterAll(async () => {
  await proxy.restore();
  await host.close();
  model.close();
  proxy.close();
  await database.drop();
});

it('GET /health/ready answers 503 while PostgreSQL is unavailable', async () => {
  const alice = new TestUser(host);
  const { body: session } = await alice.request('POST', '/sessions');
  proxy.interrupt();
  const refused = await alice.request('GET', '/sessions');
  expect([refused.status, refused.body.code]).toEqual([503, 'store_unavailable']);
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
  const readReady = async () => {
    const ready = await fetch(`${host.url}/health/ready`);
    return [ready.status, await ready.json()];
  };
  // The last check may be a second old.
  await expect
    .poll(readReady)
    .toMatchObject([
      503,
      { status: 'not_ready', checks: { store: { status: 'failing' }, disk: { status: 'ok' } } },
    ]);
  expect((await fetch(`${host.url}/health`)).status).toBe(200);
  await proxy.restore();
  await expect.poll(async () => (await alice.request('GET', '/sessions')).status).toBe(200);
  const { body } = await alice.request('GET', '/sessions');
  expect(body.sessions).toEqual([session]);
  await expect.poll(async () => (await fetch(`${host.url}/health/ready`)).status).toBe(200);
});

it('logs an outage of PostgreSQL once when it begins and once when it ends', {
  timeout: 180_000,
}, async () => {
  const alice = new TestUser(host);
  await alice.request('POST', '/sessions');
  const count = (text: RegExp) => host.log.filter(({ msg }) => text.test(String(msg))).length;
  const began = /^the store is unavailable/;
  const again = /^the store is available again/;
  // The outage of another test may not be over yet.
  await expect.poll(() => count(began) - count(again), { timeout: 30_000 }).toBe(0);
  const from = host.log.length;
  const lines = (text: string) => host.log.slice(from).filter(({ msg }) => msg === text);
  proxy.interrupt();
  for (let i = 0; i < 30; i++) {
    const method = i % 2 ? 'GET' : 'POST';
    expect((await alice.request(method, '/sessions')).body.code).toBe('store_unavailable');
  }
  await proxy.restore();
  await expect
    .poll(async () => (await alice.request('POST', '/sessions')).status, { timeout: 60_000 })
    .toBe(201);
  const ended = () => lines('the store is available again').length;
  await expect.poll(ended, { timeout: 30_000 }).toBe(1);
  expect(host.log.slice(from).filter(({ msg }) => began.test(String(msg)))).toHaveLength(1);
  expect(lines('the store is available again')).toMatchObject([
    { failures: expect.any(Number), seconds: expect.any(Number) },
  ]);
  const perRequest = lines('The store is not available; try again');
  expect(perRequest.length).toBeGreaterThanOrEqual(30);
  expect(perRequest[0]).toMatchObject({
    requestId: expect.any(String),
    reason: expect.any(String),
  });
  // Jobs of the host that fail meanwhile may say so.
  expect(perRequest.filter((entry) => 'err' in entry)).toEqual([]);
});

it('POST /messages finishes a turn during which PostgreSQL was unavailable, without loss', async () => {
  const alice = new TestUser(host);
  const sessionId = await openSession(alice);
  const live = await stream(alice, sessionId, { message: 'hold on' });
  const turn = await model.next();
  turn.say('before ');
  await live.untilEvent('message');
  proxy.interrupt();
  turn.say('during ');
  await live.until(({ data }) => String(data.content).includes('during'));
  await expect
    .poll(() => host.log.some(({ msg }) => msg === 'frames not stored; trying again'))
    .toBe(true);
  turn.say('and after');
  turn.finish();
  await expect.poll(() => host.log.some(({ msg }) => msg === 'outcome not stored yet')).toBe(true);
  expect(live.frames.some(({ event }) => event === 'done')).toBe(false);
  await proxy.restore();
  expect((await live.toEnd()).at(-1)?.data.status).toBe('finished');
  const { body } = await alice.request('GET', `/messages/${sessionId}`);
  expect(body.messages.map((m: { content: string }) => m.content)).toEqual([
    'hold on',
    'before during and after',
  ]);
  expect(await (await join(alice, live.runId, 0)).toEnd()).toEqual(live.frames);
}, 120_000);

it('answers POST /messages with 503 store_unavailable when the end cannot be stored in STORE_WAIT_SECONDS', {
  timeout: 60_000,
}, async () => {
  const env = { ...oracle, DATABASE_URL: proxy.url, STORE_WAIT_SECONDS: '1', ...model.env };
  const limited = await startHost({ env });
  onTestFinished(limited.close);
  const alice = new TestUser(limited);
  const [whole, streamed] = [await openSession(alice), await openSession(alice)];
  const body = { message: 'hold on' };
  const headers = { 'idempotency-key': 'one' };
  const asked = alice.request('POST', `/messages/${whole}`, { body, headers });
  const first = await model.next();
  const live = await stream(alice, streamed, body);
  const second = await model.next();
  proxy.interrupt();
  first.answer('as JSON');
  second.answer('as a stream');
  const answer = await asked;
  expect([answer.status, answer.body.code]).toEqual([503, 'store_unavailable']);
  const frames = await live.toEnd();
  expect(frames.slice(-2)).toMatchObject([
    { event: 'error', data: { retryable: true } },
    { event: 'done', data: { status: 'failed', partialText: 'as a stream' } },
  ]);
  await proxy.restore();
  for (const [id, text] of [
    [whole, 'as JSON'],
    [streamed, 'as a stream'],
  ])
    await expect
      .poll(async () => (await alice.request('GET', `/messages/${id}`)).body.messages?.at(-1), {
        timeout: 30_000,
      })
      .toMatchObject({ type: 'ai', content: text, isComplete: false });
  expect(await (await join(alice, live.runId, 0)).toEnd()).toEqual(frames);
});

it('POST /messages finishes a turn although the replies to its commits are lost', {
  timeout: 60_000,
}, async () => {
  const alice = new TestUser(host);
  const sessionId = await openSession(alice);
  const live = await stream(alice, sessionId, { message: 'hold on' });
  const turn = await model.next();
  const frameCommit = proxy.loseNextCommit();
  turn.say('before ');
  await frameCommit;
  const endCommit = proxy.loseNextCommit();
  turn.answer('and after');
  await endCommit;
  expect((await live.toEnd()).at(-1)?.data.status).toBe('finished');
  const { body } = await alice.request('GET', `/messages/${sessionId}`);
  expect(body.messages.map((m: { content: string }) => m.content)).toEqual([
    'hold on',
    'before and after',
  ]);
  expect(await (await join(alice, live.runId, 0)).toEnd()).toEqual(live.frames);
});

/** A proxy to the database that can interrupt and restore the connections. */
interface DatabaseProxy {
  readonly url: string;
  interrupt(): void;
  /** Lets the next commit reach the database and drops the connection instead of its reply. */
  loseNextCommit(): Promise<void>;
  restore(): Promise<void>;
  close(): void;
}

async function startProxy(databaseUrl: string): Promise<DatabaseProxy> {
  const target = new URL(databaseUrl);
  const open = new Set<Socket>();
  let lose: (() => void) | undefined;
  const server: Server = createServer((near) => {
    const far = connect(Number(target.port), target.hostname);
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      open.add(socket);
      socket
        .on('error', () => {})
        .on('close', () => {
          open.delete(socket);
          other.destroy();
        });
    }
    let isLosing = false;
    near.on('data', (data) => {
      if (lose && data.includes('commit')) isLosing = true;
      far.write(data);
    });
    far.on('data', (data) => {
      if (!isLosing) {
        near.write(data);
        return;
      }
      near.destroy();
      lose?.();
      lose = undefined;
    });
  });
  const port = await findFreePort();
  const listen = () => new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  await listen();
  const interrupt = () => {
    server.close();
    for (const socket of open) socket.destroy();
  };
  return {
    url: Object.assign(new URL(databaseUrl), { hostname: '127.0.0.1', port: String(port) }).href,
    interrupt,
    loseNextCommit: () =>
      new Promise((resolve) => {
        lose = resolve;
      }),
    restore: () => (server.listening ? Promise.resolve() : listen()),
    close: interrupt,
  };
}
