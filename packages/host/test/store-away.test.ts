import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { startHost } from './support/host.js';
import { testPlugin } from './support/plugin.js';
import { join, openSession, stream } from './support/stream.js';
import { startTcpProxy, type TcpProxy } from './support/tcp-proxy.js';
import { createTestDatabase, type TestDatabase } from './support/test-database.js';
import { postFile } from './support/upload.js';
import { TestUser } from './support/user.js';

/** A plugin whose tool never returns and never looks at its signal. */
const stuck = testPlugin('stuck', {
  getTools: () => [
    {
      name: 'hang',
      description: 'Hangs',
      inputSchema: { type: 'object' },
      run: () => new Promise<never>(() => undefined),
    },
  ],
});

let database: TestDatabase;
let proxy: TcpProxy;
let model: ControlledModel;
afterEach(async () => {
  await proxy.close();
  await database.drop();
  model.close();
});

async function prepare() {
  database = await createTestDatabase('postgres');
  proxy = await startTcpProxy(database.options.databaseUrl ?? '');
  model = await startControlledModel();
  const direct = { ...model.env, ...database.env };
  return { direct, proxied: { ...direct, DATABASE_URL: proxy.url } };
}

it('app.close ends although a tool ignores its signal and the store never answers', {
  timeout: 120_000,
}, async () => {
  const { proxied } = await prepare();
  const host = await startHost({ env: proxied, plugins: [stuck] });
  const alice = new TestUser(host);
  const live = await stream(alice, await openSession(alice), { message: 'hang' });
  (await model.next()).call({ name: 'hang', input: {} });
  await live.untilEvent('tool_call');
  proxy.freeze();
  await host.app.close(0);
  expect(host.log.map(({ msg }) => msg)).toContain('turns did not end; closing without them');
  // Whether the reader still learns of it or is hung up on depends on which comes first.
  await live.toEnd().catch(() => undefined);
  expect(live.frames.some(({ data }) => data.status === 'finished')).toBe(false);
});

it('app.close closes in order although a tool ignores its signal', async () => {
  const { direct } = await prepare();
  const host = await startHost({ env: direct, plugins: [stuck] });
  const alice = new TestUser(host);
  const live = await stream(alice, await openSession(alice), { message: 'hang' });
  (await model.next()).call({ name: 'hang', input: {} });
  await live.untilEvent('tool_call');
  await host.app.close(0);
  expect((await live.toEnd()).at(-1)?.data).toMatchObject({ status: 'interrupted' });
  expect(host.log.map(({ msg }) => msg)).not.toContain('turns did not end; closing without them');
});

it('POST /files that fails because the store is away keeps no space once it is back', {
  timeout: 120_000,
}, async () => {
  const { proxied } = await prepare();
  const host = await startHost({ env: { ...proxied, FILES_PER_USER: '2mb' } });
  const alice = new TestUser(host);
  const half = Promise.withResolvers<void>();
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      controller.enqueue(new Uint8Array(300_000));
      await half.promise;
      controller.enqueue(new Uint8Array(300_000));
      controller.close();
    },
  });
  const failed = postFile(alice, 'a.bin', body).catch(() => undefined);
  const usedBytes = async () => (await alice.request('GET', '/files')).body.usedBytes;
  await expect.poll(usedBytes).toBeGreaterThan(0);
  proxy.disconnect();
  half.resolve();
  expect(await failed).toMatchObject({ status: 503 });
  proxy.reconnect();
  await expect.poll(usedBytes, { timeout: 60_000 }).toBe(0);
  await host.close();
});

it('GET /runs/:runId logs a failing store', async () => {
  const { direct, proxied } = await prepare();
  const [working, reading] = [await startHost({ env: direct }), await startHost({ env: proxied })];
  const alice = new TestUser(working);
  const live = await stream(alice, await openSession(alice), { message: 'go' });
  const turn = await model.next();
  turn.say('first');
  await live.untilEvent('message');
  const joined = await join(alice.at(reading), live.runId, 0);
  await joined.untilEvent('message');
  await proxy.close();
  await expect(joined.toEnd()).rejects.toThrow();
  expect(reading.log.find(({ msg }) => msg === 'stream failed')).toMatchObject({
    runId: live.runId,
    did: alice.did,
    err: { message: expect.any(String) },
  });
  turn.finish();
  expect((await live.toEnd()).at(-1)?.event).toBe('done');
  await reading.close();
  await working.close();
});

it('POST /messages refuses turns at once while every connection to PostgreSQL is taken, and ends the others', {
  timeout: 120_000,
}, async () => {
  const { proxied } = await prepare();
  const host = await startHost({ env: { ...proxied, DATABASE_POOL_SIZE: '2' } });
  const chats: { user: TestUser; sessionId: string }[] = [];
  for (let i = 0; i < 20; i++) {
    const user = new TestUser(host);
    chats.push({ user, sessionId: await openSession(user) });
  }
  const send = async ({ user, sessionId }: (typeof chats)[number]) => {
    const startedAt = performance.now();
    const sent = { body: { message: 'hi' } };
    const { status, headers, body } = await user.request('POST', `/messages/${sessionId}`, sent);
    const ms = performance.now() - startedAt;
    return { status, code: body.code, retryAfter: Number(headers.get('retry-after')), ms };
  };
  const accepted = chats.splice(0, 6).map(send);
  const turns = await Promise.all(accepted.map(() => model.next()));
  proxy.freeze();
  for (const turn of turns) turn.answer('hello');
  // Longer than a turn may wait for a connection.
  await sleep(2_000);
  const refused = await Promise.all(chats.map(send));
  proxy.thaw();
  for (const { ms, ...answer } of refused) {
    expect(answer).toEqual({ status: 503, code: 'host_busy', retryAfter: 5 });
    expect(ms).toBeLessThan(1_000);
  }
  for (const answer of await Promise.all(accepted)) expect(answer.status).toBe(200);
  await host.close();
});
