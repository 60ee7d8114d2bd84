import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { join as joinPath } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { killProcessGroup } from '../../../packages/cli/test/support/kill-process-group.ts';
import { scale } from '../../../scripts/test-scale.ts';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { type HostProcess, runHost, untilListening } from './support/process.js';
import { join, openSession, type SseFrame, type SseStream, stream } from './support/stream.js';
import { createTestDatabase, engines, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

const RESTARTS = scale(8, 1);
const ROOT = joinPath(import.meta.dirname, '../../..');

let model: ControlledModel;
let database: TestDatabase;
beforeAll(async () => {
  model = await startControlledModel();
});
afterEach(() => model.discard());
afterAll(() => model.close());

const buildEnv = () => ({ PORT: '0', GATEWAY_PORT: '0', ...database.env, ...model.env });

type StartedHost = Pick<HostProcess, 'child' | 'ended'> & {
  readonly url: string;
  readonly did: string;
};

async function start(): Promise<StartedHost> {
  const host = runHost(buildEnv());
  onTestFinished(() => void host.child.kill('SIGKILL'));
  return describeHost(host, await untilListening(host));
}

async function describeHost(
  host: Pick<HostProcess, 'child' | 'ended'>,
  url: string,
): Promise<StartedHost> {
  const card = (await (await fetch(`${url}/.well-known/oracle.json`)).json()) as { did: string };
  return { child: host.child, ended: host.ended, url, did: card.did };
}

const readMessages = async (user: TestUser, sessionId: string) =>
  (await user.request('GET', `/messages/${sessionId}`)).body.messages;
const readRun = async (user: TestUser, sessionId: string) =>
  (await user.request('GET', `/sessions/${sessionId}/run`)).body.run;

/** A turn whose client has seen some text that is stored. */
async function beginAnswer(user: TestUser, sessionId: string): Promise<SseStream> {
  const live = await stream(user, sessionId, { message: 'one' });
  const turn = await model.next();
  turn.say('Half an ');
  await live.untilEvent('message');
  // What another reader of the store sees is stored.
  await expect
    .poll(async () => (await readRun(user, sessionId)).lastSeq)
    .toBeGreaterThanOrEqual(live.lastId);
  turn.say('answer');
  await live.until(({ data }) => data.content === 'answer');
  return live;
}

describe.each(engines)('on %s', (engine) => {
  beforeAll(async () => {
    database = await createTestDatabase(engine);
  });
  afterAll(() => database.drop());

  it('queued messages are answered after kill -9 and a restart', { timeout: 120_000 }, async () => {
    const first = await start();
    const alice = new TestUser(first);
    const sessionId = await openSession(alice);
    await beginAnswer(alice, sessionId);
    const queued = await stream(alice, sessionId, { message: 'two' });
    const last = await stream(alice, sessionId, { message: 'three' });
    first.child.kill('SIGKILL');
    await first.ended;

    const later = alice.at(await start());
    for (const [text, reply] of [
      ['two', '2'],
      ['three', '3'],
    ] as const) {
      const next = await model.next();
      expect(next.body.messages.at(-1).content).toContain(text);
      next.answer(reply);
    }
    for (const { runId } of [queued, last])
      expect((await (await join(later, runId, 0)).toEnd()).at(-1)?.data).toMatchObject({
        status: 'finished',
      });
    const messages = await readMessages(later, sessionId);
    expect(messages.map(({ content }: { content: string }) => content)).toEqual([
      'one',
      expect.stringMatching(/^Half an (answer)?$/),
      'two',
      '2',
      'three',
      '3',
    ]);
    expect(messages[1]).toMatchObject({ isComplete: false, status: 'interrupted' });
  });

  it('frame numbers after a crash are never reused, and jump only at a resumed run frame', {
    timeout: 120_000,
  }, async () => {
    const first = await start();
    const alice = new TestUser(first);
    const sessionId = await openSession(alice);
    const live = await beginAnswer(alice, sessionId);
    first.child.kill('SIGKILL');
    await first.ended;
    await live.toEnd().catch(() => undefined);

    const later = alice.at(await start());
    const rest = await (await join(later, live.runId, live.lastId)).toEnd();
    const [resumed, done] = [rest[0], rest.at(-1)];
    expect(resumed?.id).toBeGreaterThan(live.lastId);
    expect(resumed).toMatchObject({
      event: 'run',
      data: { runId: live.runId, resumed: true, attempt: 1, partialLength: expect.any(Number) },
    });
    expect(done).toMatchObject({
      event: 'done',
      data: { status: 'interrupted', interrupted: true },
    });
    expect(done?.data.partialText).toHaveLength(resumed?.data.partialLength);
    const all = await (await join(later, live.runId, 0)).toEnd();
    expect(findJumps(all)).toEqual([resumed?.id]);
    expect(all.slice(-rest.length)).toEqual(rest);
    // What was seen before the crash has the same number afterwards, or is missing.
    for (const frame of all.slice(0, -rest.length)) expect(live.frames).toContainEqual(frame);
  });
});

/** The numbers of frames that do not follow the previous one. */
function findJumps(frames: readonly SseFrame[]): number[] {
  return frames.map(({ id }) => id).filter((id, i) => id !== (frames[i - 1]?.id ?? 0) + 1);
}

/** Whether this machine can create pid namespaces, as a container does. */
const canUnshare = spawnSync('unshare', ['--pid', '--fork', 'true']).status === 0;

describe.each(engines)('kill -9 of npm start and an immediate restart on %s', (engine) => {
  beforeAll(async () => {
    database = await createTestDatabase(engine);
  });
  afterAll(() => database.drop());

  const launchers: readonly (readonly [string, readonly string[]])[] = [
    ['as an operator does', []],
    ['in a new pid namespace', ['unshare', '--pid', '--fork', '--kill-child']],
  ];

  it.each(launchers)(
    `shows the partial answer at once: %s, ${RESTARTS} times`,
    {
      timeout: 60_000 + RESTARTS * 60_000,
    },
    async (_, launcher) => {
      // Where namespaces are not allowed, such as in most containers, the rest is still tested.
      const command = [...(canUnshare ? launcher : []), 'npm', 'start'];
      let host = await startWithNpm(command);
      for (let restart = 0; restart < RESTARTS; restart++) {
        const alice = new TestUser(host);
        const sessionId = await openSession(alice);
        const live = await beginAnswer(alice, sessionId);
        killProcessGroup(host.child);
        // Not awaited: the processes may not have been removed when the next ones start.
        host = await startWithNpm(command);
        const later = alice.at(host);
        const messages = await readMessages(later, sessionId);
        expect(messages).toMatchObject([
          { type: 'human', content: 'one' },
          { type: 'ai', content: expect.stringMatching(/^Half an /), isComplete: false },
        ]);
        expect(await readRun(later, sessionId)).toMatchObject({
          runId: live.runId,
          status: 'interrupted',
          messageId: messages[1].id,
        });
      }
      killProcessGroup(host.child);
    },
  );
});

/** Runs the command in its own process group and waits for the host. */
async function startWithNpm([command = '', ...args]: readonly string[]): Promise<StartedHost> {
  const { PATH = '', HOME = '' } = process.env;
  const child: ChildProcess = spawn(command, args, {
    cwd: ROOT,
    env: { PATH, HOME, HOST: '127.0.0.1', ...buildEnv() },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  onTestFinished(() => killProcessGroup(child));
  let text = '';
  for (const stream of [child.stdout, child.stderr])
    stream?.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
    });
  const ended = once(child, 'close').then(([code, signal]) => code ?? signal);
  const pattern = /listening on (http:[^\s",]+), talk to it/;
  await expect.poll(() => text, { timeout: 240_000 }).toMatch(pattern);
  return describeHost({ child, ended }, pattern.exec(text)?.[1] ?? '');
}

it('a second host on the same SQLite directory is refused with an explanation', async () => {
  database = await createTestDatabase('sqlite');
  onTestFinished(() => database.drop());
  const first = await start();
  const second = runHost(buildEnv());
  expect(await second.ended).toBe(1);
  expect(second.output()).toMatch(/DATA_DIR \(host\): another host is using/);
  expect(second.output()).toContain('DATABASE_URL');
  expect(second.output()).not.toMatch(/^\s+at /m);
  const alice = new TestUser(first);
  expect(await openSession(alice)).toEqual(expect.any(String));
  first.child.kill('SIGKILL');
  await first.ended;
  // The lock ends with its process, however that ended.
  expect(await openSession(alice.at(await start()))).toEqual(expect.any(String));
});
