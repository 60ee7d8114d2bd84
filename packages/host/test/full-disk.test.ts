import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { type IncomingMessage, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { ERASE_ABILITY, toOracleResource } from '@sibyl/protocol/decisions';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { type HostProcess, untilListening } from './support/process.js';
import { checkSmallDisk, SmallDisk } from './support/small-disk.js';
import { join as joinRun, openSession, stream } from './support/stream.js';
import { postFile, upload } from './support/upload.js';
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
let disk: SmallDisk | undefined;
let host: HostProcess | undefined;
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'sibyl-disk-'));
});
afterEach(async () => {
  host?.child.kill('SIGKILL');
  await host?.ended;
  disk?.close();
  disk = undefined;
  await rm(dataDir, { recursive: true, force: true });
});

async function start(env: Record<string, string>, megabytes = 16) {
  disk ??= await SmallDisk.mount(dataDir, megabytes);
  const running = disk.run({
    PORT: '0',
    FEATURES: 'memory=false',
    RATE_LIMIT_PER_MINUTE: '1000000',
    RATE_LIMIT_ANONYMOUS_PER_MINUTE: '1000000',
    ...model.env,
    ...env,
  });
  host = running;
  const url = await untilListening(running);
  const card = (await (await fetch(`${url}/.well-known/oracle.json`)).json()) as { did: string };
  const ready = async () => {
    const response = await fetch(`${url}/health/ready`);
    return [response.status, await response.json()] as const;
  };
  return { ...running, disk, url, ready, alice: new TestUser({ url, did: card.did }) };
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
    const { alice, ready, disk, output, url } = await start({ DISK_MIN_FREE: '0' });
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
    disk.fill();
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

    disk.free();
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

  it('refuses DELETE /me with 503, after which the same confirmation erases once there is space', {
    timeout: 60_000,
  }, async () => {
    const { alice, disk } = await start({ DISK_MIN_FREE: '0' });
    await openSession(alice);
    disk.fill();
    await untilRefused(alice);
    const confirmed = confirmErasure(alice);
    const refused = await alice.request('DELETE', '/me', confirmed);
    expect([refused.status, refused.body.code]).toEqual([503, 'store_unavailable']);
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    disk.free();
    const erase = async () => (await alice.request('DELETE', '/me', confirmed)).status;
    await expect.poll(erase, { timeout: 30_000 }).toBe(200);
  });

  it('rejects POST /sessions, POST /messages and POST /delegation below DISK_MIN_FREE, while the rest works', {
    timeout: 60_000,
  }, async () => {
    const { alice, ready, disk, url } = await start({ DISK_MIN_FREE: '8mb' });
    const sessionId = await openSession(alice);
    expect((await ready())[0]).toBe(200);
    disk.fill(10 * MB);
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
    disk.free();
    await expect.poll(async () => (await alice.request('POST', '/sessions')).status).toBe(201);
    expect(await listBy()).toMatchObject({ delegations: [{ isCurrent: false }] });
  });

  it.each([
    ['the key', {}],
    ['the database', { ORACLE_PRIVATE_KEY: '0123456789abcdef'.repeat(4) }],
  ])(
    'prints what to do instead of a stack when %s cannot be written at startup',
    async (_, env) => {
      disk = await SmallDisk.mount(dataDir, 1);
      disk.fill();
      const running = disk.run({ PORT: '0', ...env });
      host = running;
      expect(await running.ended).toBe(1);
      expect(running.output()).toMatch(/free some space/);
      expect(running.output()).not.toMatch(/^\s+at /m);
    },
  );
});

/** As much as some megabytes in pieces, without a length; `each` runs before every piece. */
const sendMegabytes = (count: number, each = async (_sent: number) => {}) => {
  let sent = 0;
  return new ReadableStream<Uint8Array>({
    pull: async (controller) => {
      await each(sent);
      if (sent === count) return controller.close();
      sent += 1;
      controller.enqueue(new Uint8Array(MB).fill(sent));
    },
  });
};

/** The answer to a body that is announced, but not sent. */
async function declare(user: TestUser, path: string, bytes: number) {
  const headers = { ...user.headers, 'content-length': bytes };
  const sent = request(user.host.url + path, { method: 'POST', headers }).on('error', () => {});
  sent.flushHeaders();
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  const body = JSON.parse(await text(response));
  sent.destroy();
  return { status: response.statusCode, body };
}

const confirmErasure = (user: TestUser) => {
  const capability = { can: ERASE_ABILITY, with: toOracleResource(user.host.did) };
  return { body: { invocation: user.delegate({ capabilities: [capability], ttlSeconds: 300 }) } };
};

describe.skipIf(fault)('the reserve of DISK_MIN_FREE', () => {
  const reserve = { DISK_MIN_FREE: '16mb' };

  /** The least that is free while something runs. */
  async function measureFree(disk: SmallDisk, work: () => Promise<unknown>): Promise<number> {
    let least = disk.freeBytes;
    const timer = setInterval(() => {
      least = Math.min(least, disk.freeBytes);
    }, 5);
    await work().finally(() => clearInterval(timer));
    return least;
  }

  /** So that the sender receives the answer before the connection is closed. */
  const slowDown = (disk: SmallDisk) => sleep(disk.freeBytes < 90 * MB ? 100 : 0);

  const full = { status: 503, body: { code: 'disk_full' } };

  it('stays free of POST /files, of declared and undeclared length and of several at a time', {
    timeout: 90_000,
  }, async () => {
    const { alice, disk } = await start(reserve, 128);
    const bob = new TestUser(alice.host);
    const least = await measureFree(disk, async () => {
      expect(await declare(alice, '/files?name=a', 110 * MB)).toMatchObject(full);
      expect(
        await postFile(
          alice,
          'a',
          sendMegabytes(110, () => slowDown(disk)),
        ),
      ).toMatchObject(full);
      // The space of what was refused is given back.
      await expect.poll(() => disk.freeBytes, { timeout: 30_000 }).toBeGreaterThan(85 * MB);
      const both = [alice, bob].map((user, i) =>
        postFile(user, 'a', new Uint8Array(30 * MB).fill(i)),
      );
      const statuses = (await Promise.all(both)).map(({ status }) => status);
      expect(statuses.sort()).toEqual([200, 503]);
    });
    // SQLite's log is written before it is moved into the file.
    expect(least).toBeGreaterThan(14 * MB);
    for (const user of [alice, bob]) {
      const { files } = (await user.request('GET', '/files')).body;
      for (const { fileId } of files)
        expect((await user.request('DELETE', `/files/${fileId}`)).status).toBe(200);
    }
    await expect.poll(async () => (await bob.request('POST', '/sessions')).status).toBe(201);
    const again = async () => (await postFile(bob, 'b', new Uint8Array(30 * MB))).status;
    await expect.poll(again, { timeout: 30_000 }).toBe(200);
  });

  it('stays free of POST /me/import, of declared and undeclared length', {
    timeout: 60_000,
  }, async () => {
    const { alice, disk, url } = await start(reserve, 128);
    const send = async (body: ReadableStream) => {
      const sent = { method: 'POST', headers: alice.headers, body: body as BodyInit };
      const answer = await fetch(`${url}/me/import`, {
        ...sent,
        ...({ duplex: 'half' } as object),
      });
      return { status: answer.status, body: await answer.json() };
    };
    const least = await measureFree(disk, async () => {
      expect(await declare(alice, '/me/import', 110 * MB)).toMatchObject(full);
      expect(await send(sendMegabytes(110, () => slowDown(disk)))).toMatchObject(full);
    });
    expect(least).toBeGreaterThan(30 * MB);
    expect(disk.freeBytes).toBeGreaterThan(85 * MB);
    expect((await alice.request('POST', '/sessions')).status).toBe(201);
  });

  it('is gone when another process fills the disk during POST /files, which is refused and removed', {
    timeout: 90_000,
  }, async () => {
    const { alice, disk, ready } = await start(reserve, 128);
    const dora = new TestUser(alice.host);
    const sessionId = await openSession(alice);
    await expect.poll(() => disk.has('ballast')).toBe(true);
    let sent = 0;
    const broken = new ReadableStream<Uint8Array>({
      pull: async (controller) => {
        // So that the answer is received before the connection is closed.
        if (sent > 20) await new Promise(() => {});
        if (sent === 20) await sleep(500);
        if (sent === 20) disk.fill();
        controller.enqueue(new Uint8Array(sent < 20 ? MB : MB / 3).fill(sent));
        sent += 1;
      },
    });
    expect(await postFile(dora, 'broken', broken)).toMatchObject(full);
    // What was stored of it, and the ballast.
    await expect.poll(() => disk.freeBytes, { timeout: 30_000 }).toBeGreaterThan(20 * MB);
    expect((await alice.request('DELETE', `/sessions/${sessionId}`)).status).toBe(200);
    disk.free();
    await expect.poll(async () => (await ready())[0], { timeout: 30_000 }).toBe(200);
    expect((await alice.request('POST', '/sessions')).status).toBe(201);
  });

  it('is gone when another process fills the disk: a host that was killed starts again, and everything can be deleted', {
    timeout: 90_000,
  }, async () => {
    const first = await start({ DISK_MIN_FREE: '32mb' }, 128);
    const { alice, disk } = first;
    const carol = new TestUser(alice.host);
    const sessionId = await openSession(alice);
    await openSession(carol);
    const { fileId } = await upload(alice, 'kept', new Uint8Array(8 * MB).fill(1));
    await expect.poll(() => disk.has('ballast')).toBe(true);
    first.child.kill('SIGKILL');
    await first.ended;
    disk.fill();
    expect(disk.freeBytes).toBe(0);
    const { ready, url } = await start({ DISK_MIN_FREE: '32mb' });
    const [user, other] = [alice, carol].map((one) => one.at({ url, did: one.host.did }));
    expect((await ready())[0]).toBe(503);
    const { total } = (await user?.request('GET', '/sessions'))?.body ?? {};
    expect(total).toBeGreaterThan(0);
    expect((await user?.request('POST', '/sessions'))?.body.code).toBe('disk_full');
    expect((await user?.request('DELETE', `/sessions/${sessionId}`))?.status).toBe(200);
    expect((await user?.request('DELETE', `/files/${fileId}`))?.status).toBe(200);
    // Given back by the host, without a restart.
    await expect.poll(() => disk.freeBytes, { timeout: 30_000 }).toBeGreaterThan(7 * MB);
    const erase = async () =>
      (await other?.request('DELETE', '/me', confirmErasure(other)))?.status;
    await expect.poll(erase, { timeout: 30_000 }).toBe(200);
    disk.free();
    await expect.poll(async () => (await ready())[0], { timeout: 30_000 }).toBe(200);
    expect((await user?.request('POST', '/sessions'))?.status).toBe(201);
  });
});
