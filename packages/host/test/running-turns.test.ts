import { once } from 'node:events';
import fs from 'node:fs';
import { connect } from 'node:net';
import { join as joinPath } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { useControlledHost } from './support/controlled-host.js';
import { startControlledModel } from './support/controlled-model.js';
import { startHost } from './support/host.js';
import { testPlugin } from './support/plugin.js';
import { openSession, stream } from './support/stream.js';
import { TestGate } from './support/test-gate.js';
import { TestUser } from './support/user.js';

const test = useControlledHost();

describe('while a turn is running, a stranger', () => {
  const routes: readonly (readonly [string, string, (ids: Ids) => string, unknown, object])[] = [
    ['its stream', 'GET', ({ runId }) => `/runs/${runId}`, undefined, { code: 'run_not_found' }],
    [
      'its frames',
      'GET',
      ({ runId }) => `/runs/${runId}?after=1`,
      undefined,
      { code: 'run_not_found' },
    ],
    [
      'its state',
      'GET',
      ({ sessionId }) => `/sessions/${sessionId}/run`,
      undefined,
      { code: 'session_not_found' },
    ],
    [
      'its pages',
      'GET',
      ({ sessionId }) => `/sessions/${sessionId}/messages`,
      undefined,
      { code: 'session_not_found' },
    ],
    [
      'its messages',
      'GET',
      ({ sessionId }) => `/messages/${sessionId}`,
      undefined,
      { code: 'session_not_found' },
    ],
    [
      'its end',
      'POST',
      () => '/messages/abort',
      ({ sessionId }: Ids) => ({ sessionId }),
      { success: false },
    ],
    [
      'its session',
      'DELETE',
      ({ sessionId }) => `/sessions/${sessionId}`,
      undefined,
      { code: 'session_not_found' },
    ],
    [
      'a place in it',
      'POST',
      ({ sessionId }) => `/messages/${sessionId}`,
      () => ({ message: 'x', multitask: 'interrupt' }),
      { code: 'session_not_found' },
    ],
  ];

  it.each(routes)(
    'is refused %s as if there were none: %s',
    async (_, method, path, body, expected) => {
      const ids = { runId: '', sessionId: await openSession(test.alice) };
      const live = await stream(test.alice, ids.sessionId, { message: 'secret question' });
      const turn = await test.model.next();
      turn.say('secret');
      await live.untilEvent('message');
      ids.runId = live.runId;
      const eve = new TestUser(test.host);
      const ask = async (of: Ids) => {
        const sent = typeof body === 'function' ? { body: body(of) } : {};
        const { requestId: _, ...answer } = (await eve.request(method, path(of), sent)).body;
        return answer;
      };
      const answer = await ask(ids);
      expect(answer).toMatchObject(expected);
      expect(answer).toEqual(await ask({ runId: 'unknown', sessionId: 'unknown' }));
      expect(JSON.stringify(answer)).not.toContain('secret');
      turn.finish();
      expect((await live.toEnd()).at(-1)?.data.status).toBe('finished');
    },
  );
});

interface Ids {
  runId: string;
  sessionId: string;
}

/** A message whose headers have arrived while its body is still to come. */
async function openMessage(user: TestUser, sessionId: string) {
  const { hostname, port } = new URL(user.host.url);
  const body = JSON.stringify({ message: 'too late' });
  const lines = [
    `POST /messages/${sessionId} HTTP/1.1`,
    `host: ${hostname}`,
    'content-type: application/json',
    `content-length: ${body.length}`,
    'connection: close',
    ...Object.entries(user.headers).map(([name, value]) => `${name}: ${value}`),
  ];
  const socket = connect(Number(port), hostname);
  await once(socket, 'connect');
  socket.write(`${lines.join('\r\n')}\r\n\r\n${body.slice(0, 5)}`);
  return {
    finish: async () => {
      socket.write(body.slice(5));
      return text(socket);
    },
  };
}

describe('a host that is stopping', () => {
  it('answers POST /messages with 503 host_stopping and stores nothing', async () => {
    const model = await startControlledModel();
    const gate = new TestGate();
    const plugins = [testPlugin('gate', { getMessageGate: () => gate })];
    const host = await startHost({ env: model.env, plugins });
    const alice = new TestUser(host);
    const [busy, idle] = [await openSession(alice), await openSession(alice)];
    const live = await stream(alice, busy, { message: 'still running' });
    const turn = await model.next();
    const late = await openMessage(alice, idle);
    // Its headers have been read once a request sent after it is answered.
    await alice.request('GET', '/sessions');
    const closed = host.app.close(60_000);
    await expect.poll(() => host.log.some(({ msg }) => msg === 'stopping')).toBe(true);
    const answer = await late.finish();
    expect(answer).toMatch(/^HTTP\/1\.1 503 /);
    expect(answer).toContain('"code":"host_stopping"');
    expect(gate.asked).toMatchObject([{ sessionId: busy }]);
    expect(answer.toLowerCase()).toContain('retry-after: ');
    turn.answer('finished all the same');
    expect((await live.toEnd()).at(-1)?.data.status).toBe('finished');
    await closed;
    const database = new DatabaseSync(joinPath(host.dataDir, 'sibyl.db'));
    expect(database.prepare('select content from messages where session_id = ?').all(idle)).toEqual(
      [],
    );
    database.close();
    model.close();
  });

  it('refuses a message that a gate lets in only then', async () => {
    const model = await startControlledModel();
    const gate = new TestGate();
    const plugins = [testPlugin('gate', { getMessageGate: () => gate })];
    const host = await startHost({ env: model.env, plugins });
    const alice = new TestUser(host);
    const sessionId = await openSession(alice);
    const admitted = Promise.withResolvers<undefined>();
    gate.decide = () => admitted.promise;
    const reply = alice.request('POST', `/messages/${sessionId}`, { body: { message: 'x' } });
    await expect.poll(() => gate.asked.length).toBe(1);
    const closed = host.app.close(60_000);
    await expect.poll(() => host.log.some(({ msg }) => msg === 'stopping')).toBe(true);
    admitted.resolve(undefined);
    const { status, body } = await reply;
    expect([status, body.code]).toEqual([503, 'host_stopping']);
    expect(await gate.settledOnce()).toEqual([]);
    await closed;
    model.close();
  });
});

it('a turn ends when another process has closed its run', async () => {
  const sessionId = await openSession(test.alice);
  const live = await stream(test.alice, sessionId, { message: 'mine' });
  const turn = await test.model.next();
  turn.say('before');
  await live.untilEvent('message');
  const database = new DatabaseSync(joinPath(test.host.dataDir, 'sibyl.db'), { timeout: 5000 });
  database
    .prepare("update runs set status = 'interrupted' where owner = ? and id = ?")
    .run(test.alice.did, live.runId);
  database.close();
  turn.say('after');
  await turn.left;
  expect((await live.toEnd()).at(-1)?.data).toMatchObject({ status: 'interrupted' });
});

describe('while the disk still writes a message', () => {
  const syncs: ((error: Error | null) => void)[] = [];

  /** Makes the disk take as long as the test wants. */
  function holdDisk(): void {
    vi.spyOn(fs, 'fdatasync').mockImplementation((_, finish) => {
      syncs.push(finish as (error: Error | null) => void);
    });
  }

  afterEach(() => {
    vi.restoreAllMocks();
    for (const finish of syncs.splice(0)) finish(null);
  });

  /** A session with a turn, after which nothing more is written: the message would have to wait for it. */
  async function openQuietSession(): Promise<string> {
    const sessionId = await openSession(test.alice);
    const live = await stream(test.alice, sessionId, { message: 'before' });
    (await test.model.next()).answer('done');
    await live.toEnd();
    const { calls } = vi.spyOn(fs, 'fdatasync').mock;
    for (let known = -1; known !== calls.length; ) {
      known = calls.length;
      await sleep(400);
    }
    return sessionId;
  }

  it('the model is asked already, but the client hears nothing', async () => {
    const sessionId = await openQuietSession();
    holdDisk();
    const opening = stream(test.alice, sessionId, { message: 'quick' });
    const turn = await test.model.next();
    turn.say('early');
    expect(await Promise.race([opening, sleep(300, 'nothing')])).toBe('nothing');
    vi.restoreAllMocks();
    for (const finish of syncs.splice(0)) finish(null);
    const live = await opening;
    turn.finish();
    await live.toEnd();
    expect(live.text).toBe('early');
  });

  it('its failure stops the turn, and the client learns of it', async () => {
    const sessionId = await openQuietSession();
    holdDisk();
    const reply = test.alice.request('POST', `/messages/${sessionId}`, { body: { message: 'x' } });
    const turn = await test.model.next();
    vi.restoreAllMocks();
    const full = Object.assign(new Error('no space'), { code: 'ENOSPC' });
    for (const finish of syncs.splice(0)) finish(full);
    const { status, body } = await reply;
    expect([status, body.code]).toEqual([503, 'store_unavailable']);
    await turn.left;
  });
});
