import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { untilListening } from './support/process.js';
import { checkSmallDisk, runOnSmallDisk, type SmallDiskHost } from './support/small-disk.js';
import { join as joinRun, openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const fault = checkSmallDisk();
if (fault) process.stderr.write(`full-disk.test.ts is skipped: ${fault}\n`);

const MB = 1024 * 1024;

/** More than any room that SQLite has claimed before. */
const answers = { whole: 'whole '.repeat(50_000), rest: 'rest '.repeat(50_000) };

let model: ControlledModel;
beforeAll(async () => {
  model = await startControlledModel();
});
afterAll(() => model.close());

let dataDir: string;
let host: SmallDiskHost | undefined;
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'sibyl-disk-'));
});
afterEach(async () => {
  host?.child.kill('SIGKILL');
  await host?.ended;
  await rm(dataDir, { recursive: true, force: true });
});

async function start(env: Record<string, string>) {
  const limits = { RATE_LIMIT_PER_MINUTE: '1000000', RATE_LIMIT_ANONYMOUS_PER_MINUTE: '1000000' };
  const running = runOnSmallDisk(
    { PORT: '0', DATA_DIR: dataDir, FEATURES: 'memory=false', ...limits, ...model.env, ...env },
    { megabytes: 16 },
  );
  host = running;
  const url = await untilListening(running);
  const card = (await (await fetch(`${url}/.well-known/oracle.json`)).json()) as { did: string };
  const ready = async () => {
    const response = await fetch(`${url}/health/ready`);
    return [response.status, await response.json()] as const;
  };
  return { ...running, url, ready, alice: new TestUser({ url, did: card.did }) };
}

async function untilRefused(user: TestUser) {
  for (;;) {
    const answer = await user.request('POST', '/sessions');
    if (answer.status !== 201) return answer;
  }
}

describe.skipIf(fault)('a host on a full disk', () => {
  it('reports on POST /messages that the answer could not be stored, and stores it once there is space', {
    timeout: 90_000,
  }, async () => {
    const { alice, ready, fill, free, output, url } = await start({ DISK_MIN_FREE: '0' });
    expect((await ready())[0]).toBe(200);
    const [whole, streamed] = [await openSession(alice), await openSession(alice)];
    const asked = alice.request('POST', `/messages/${whole}`, { body: { message: 'as JSON' } });
    const wholeTurn = await model.next();
    const live = await stream(alice, streamed, { message: 'as a stream' });
    const streamedTurn = await model.next();
    streamedTurn.say('before ');
    await live.untilEvent('message');

    // What the write-ahead log has allocated since the start would still take some writes.
    for (let i = 0; i < 100; i++)
      await alice.request('PATCH', `/sessions/${whole}`, { body: { title: `title ${i}` } });
    fill();
    // SQLite's log may have room left that it has claimed before.
    const refused = await untilRefused(alice);
    expect(refused.body.code).toBe('store_unavailable');
    wholeTurn.answer(answers.whole);
    streamedTurn.answer(answers.rest);
    const answer = await asked;
    expect([answer.status, answer.body.code]).toEqual([503, 'store_unavailable']);
    expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0);
    const frames = await live.toEnd();
    expect(frames.slice(-2)).toMatchObject([
      { event: 'error', data: { kind: 'server', retryable: true } },
      { event: 'done', data: { status: 'failed', partialText: `before ${answers.rest}` } },
    ]);

    const full = { status: 'failing', message: 'The disk of the database is full' };
    await expect.poll(ready).toMatchObject([503, { status: 'not_ready', checks: { store: full } }]);
    expect((await fetch(`${url}/health`)).status).toBe(200);
    expect((await alice.request('GET', '/sessions')).body.total).toBeGreaterThanOrEqual(2);
    expect((await alice.request('GET', `/messages/${whole}`)).body.messages).toHaveLength(1);
    expect(output().match(/the store is unavailable/g)).toHaveLength(1);

    free();
    await expect.poll(async () => (await ready())[0], { timeout: 30_000 }).toBe(200);
    const texts = async (id: string) =>
      (await alice.request('GET', `/messages/${id}`)).body.messages.map(
        ({ content }: { content: string }) => content,
      );
    await expect.poll(() => texts(whole), { timeout: 30_000 }).toEqual(['as JSON', answers.whole]);
    await expect
      .poll(() => texts(streamed), { timeout: 30_000 })
      .toEqual(['as a stream', `before ${answers.rest}`]);
    expect(await (await joinRun(alice, live.runId, 0)).toEnd()).toEqual(frames);
    await expect
      .poll(() => output().match(/the store is available again/g)?.length, { timeout: 30_000 })
      .toBe(1);
    expect(output().match(/the store is unavailable/g)).toHaveLength(1);
    const next = alice.request('POST', `/messages/${whole}`, { body: { message: 'again' } });
    (await model.next()).answer('yes');
    expect((await next).body.message.content).toBe('yes');
  });

  it('rejects POST /sessions, POST /messages and POST /delegation below DISK_MIN_FREE, while the rest works', {
    timeout: 60_000,
  }, async () => {
    const { alice, ready, fill, free, url } = await start({ DISK_MIN_FREE: '8mb' });
    const sessionId = await openSession(alice);
    expect((await ready())[0]).toBe(200);
    fill(10 * MB);
    const low = { store: { status: 'ok' }, disk: { status: 'failing' } };
    await expect.poll(ready).toMatchObject([503, { status: 'not_ready', checks: low }]);
    const body = { message: 'hi' };
    for (const refused of [
      await alice.request('POST', '/sessions'),
      await alice.request('POST', '/delegation', { body: { raw: alice.delegate() } }),
      await alice.request('DELETE', '/delegation', {
        headers: { 'x-ucan-delegation': alice.delegate() },
      }),
      await alice.request('POST', `/messages/${sessionId}`, { body }),
      await alice.request('POST', `/messages/${sessionId}`, { body: { ...body, stream: true } }),
    ]) {
      expect([refused.status, refused.body.code]).toEqual([503, 'disk_full']);
      expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    }
    expect((await alice.request('GET', '/sessions')).body.total).toBe(1);
    expect((await alice.request('DELETE', `/sessions/${sessionId}`)).status).toBe(200);
    expect((await alice.request('DELETE', '/delegation')).status).toBe(200);
    const login = { 'x-ucan-delegation': alice.delegate({ ttlSeconds: null }) };
    const listBy = async () => (await fetch(`${url}/delegations`, { headers: login })).json();
    expect(await listBy()).toEqual({ delegations: [] });
    free();
    await expect.poll(async () => (await alice.request('POST', '/sessions')).status).toBe(201);
    expect(await listBy()).toMatchObject({ delegations: [{ isCurrent: false }] });
  });

  it.each([
    ['the key', {}],
    ['the database', { ORACLE_PRIVATE_KEY: '0123456789abcdef'.repeat(4) }],
  ])(
    'prints what to do instead of a stack when %s cannot be written at startup',
    async (_, env) => {
      const running = runOnSmallDisk(
        { PORT: '0', DATA_DIR: dataDir, ...env },
        { megabytes: 1, isFull: true },
      );
      host = running;
      expect(await running.ended).toBe(1);
      expect(running.output()).toMatch(/free some space/);
      expect(running.output()).not.toMatch(/^\s+at /m);
    },
  );
});
