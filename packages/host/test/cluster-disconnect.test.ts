import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join as joinPath } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import {
  type ControlledModel,
  type ModelTurn,
  startControlledModel,
} from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { RestartablePostgres } from './support/restartable-postgres.js';
import { join, openSession, stream } from './support/stream.js';
import { startTcpProxy, type TcpProxy } from './support/tcp-proxy.js';
import { TestUser } from './support/user.js';

const ORACLE_PRIVATE_KEY = '07'.repeat(32);
/** Twice as long as turns continue without their database. */
const FREEZE_MS = 20_000;

let postgres: RestartablePostgres;
let proxy: TcpProxy;
let model: ControlledModel;
let dataDir: string;
let disconnected: TestHost;
let other: TestHost;
beforeAll(async () => {
  postgres = await RestartablePostgres.start();
  proxy = await startTcpProxy(postgres.url);
  model = await startControlledModel();
  dataDir = mkdtempSync(joinPath(tmpdir(), 'sibyl-disconnect-'));
  const start = (name: string, DATABASE_URL: string) =>
    startHost({
      env: { ...model.env, ORACLE_PRIVATE_KEY, DATABASE_URL, DATA_DIR: joinPath(dataDir, name) },
    });
  disconnected = await start('disconnected', proxy.url);
  other = await start('other', postgres.url);
});
afterEach(() => model.discard());
afterAll(async () => {
  await disconnected?.close();
  await other?.close();
  model?.close();
  await proxy?.close();
  await postgres?.stop();
  rmSync(dataDir, { recursive: true, force: true });
});

/** Lets the model say a word every few milliseconds until the host hangs up. */
function chatter(turn: ModelTurn): Promise<void> {
  const timer = setInterval(() => turn.say('word '), 50);
  return turn.left.finally(() => clearInterval(timer));
}

const readMessages = async (user: TestUser, sessionId: string) =>
  (await user.request('GET', `/messages/${sessionId}`)).body.messages;

const untilReady = (host: TestHost) =>
  expect.poll(async () => (await fetch(`${host.url}/health/ready`)).status).toBe(200);

describe('a host without PostgreSQL', () => {
  it('serves its readers for a while, then stops its turns; nothing is stored twice', async () => {
    const alice = new TestUser(disconnected);
    const sessionId = await openSession(alice);
    const live = await stream(alice, sessionId, { message: 'talk' });
    const left = chatter(await model.next());
    await live.untilEvent('message');
    const frozen = { isOver: false };
    const thawed = postgres.freeze(FREEZE_MS).then(() => {
      frozen.isOver = true;
    });
    const before = live.frames.length;
    await live.until(({ id }) => id > before + 20);
    const frames = await live.toEnd();
    expect(frames.at(-1)).toMatchObject({ event: 'done', data: { status: 'failed' } });
    await left;
    expect(frozen.isOver).toBe(false);
    await thawed;
    await untilReady(disconnected);
    await expect.poll(async () => (await readMessages(alice.at(other), sessionId)).length).toBe(2);
    const [, answer] = await readMessages(alice, sessionId);
    expect(live.text.startsWith(answer.content)).toBe(true);
    expect(answer).toMatchObject({ isComplete: false });
    const next = await stream(alice, sessionId, { message: 'again' });
    (await model.next()).answer('fine');
    expect((await next.toEnd()).at(-1)?.data.status).toBe('finished');
  });

  it('loses its running turn and its queue to another host, and starts none', async () => {
    const alice = new TestUser(disconnected);
    const sessionId = await openSession(alice);
    const live = await stream(alice, sessionId, { message: 'talk' });
    const turn = await model.next();
    turn.say('half');
    await live.untilEvent('message');
    const queued = await stream(alice, sessionId, { message: 'wait' });
    const readSeq = async () => {
      const { body } = await alice.request('GET', `/sessions/${sessionId}/run`);
      return body.run.lastSeq;
    };
    await expect.poll(readSeq).toBe(live.lastId);
    proxy.disconnect();
    try {
      const there = alice.at(other);
      // The other host has executed the queued turn.
      (await model.next()).answer('taken over');
      const rest = await (await join(there, queued.runId, 0)).toEnd();
      expect(rest.at(-1)?.data.status).toBe('finished');
      await expect(queued.toEnd()).rejects.toThrow();
      const refused = await alice.request('POST', `/messages/${sessionId}`, {
        body: { message: 'now' },
      });
      expect(refused.status).toBe(503);
      expect((await fetch(`${disconnected.url}/health/ready`)).status).toBe(503);
      turn.say(' more');
      expect((await live.toEnd()).at(-1)?.data.status).not.toBe('finished');
      await turn.left;
    } finally {
      proxy.reconnect();
    }
    await untilReady(disconnected);
    const messages = await readMessages(alice, sessionId);
    expect(messages.map(({ content }: { content: string }) => content)).toEqual([
      'talk',
      'half',
      'wait',
      'taken over',
    ]);
  });

  it('that is back at once drops a queued turn that another host has executed', async () => {
    const alice = new TestUser(disconnected);
    const sessionId = await openSession(alice);
    const live = await stream(alice, sessionId, { message: 'talk' });
    (await model.next()).say('half');
    await live.untilEvent('message');
    const queued = await stream(alice, sessionId, { message: 'wait' });
    proxy.disconnect();
    (await model.next()).answer('taken over');
    proxy.reconnect();
    await expect(queued.toEnd()).rejects.toThrow();
    const rest = await (await join(alice, queued.runId, 0)).toEnd();
    expect(rest.at(-1)?.data.status).toBe('finished');
    expect((await live.toEnd()).at(-1)?.data.status).toBe('interrupted');
  });
});

it('POST /messages/abort reaches a silent turn of another host without a notification', async () => {
  const alice = new TestUser(disconnected);
  const sessionId = await openSession(alice);
  const live = await stream(alice, sessionId, { message: 'think' });
  const turn = await model.next();
  proxy.mute();
  try {
    await alice.at(other).request('POST', '/messages/abort', { body: { sessionId } });
    expect((await live.toEnd()).at(-1)?.data.status).toBe('aborted');
    await turn.left;
  } finally {
    proxy.unmute();
  }
});
