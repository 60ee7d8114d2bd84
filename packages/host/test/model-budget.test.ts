import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { filterFrames } from './support/ask.js';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

let model: ControlledModel;
let dataDir: string;
let host: TestHost;
beforeEach(async () => {
  model = await startControlledModel();
  dataDir = await mkdtemp(join(tmpdir(), 'sibyl-budget-'));
});
afterEach(async () => {
  await host.close();
  model.close();
  await rm(dataDir, { recursive: true });
});

/** Every call of the model costs 10 tokens, that for a title included. */
async function start(tokens: number): Promise<TestHost> {
  const env = { ...model.env, DATA_DIR: dataDir, MODEL_TOKENS_PER_DAY: `${tokens}` };
  host = await startHost({ env });
  return host;
}

const send = (user: TestUser, sessionId: string) =>
  user.request('POST', `/messages/${sessionId}`, { body: { message: 'hello' } });

it('MODEL_TOKENS_PER_DAY refuses every user with 503 once it is spent, also after a restart', async () => {
  const alice = new TestUser(await start(20));
  const sessionId = await openSession(alice);
  const first = send(alice, sessionId);
  (await model.next()).answer('10 tokens');
  expect((await first).status).toBe(200);
  // The title makes it 20.
  const title = async () => (await alice.request('GET', '/sessions')).body.sessions[0].title;
  await expect.poll(title).not.toBe('Untitled');
  const bob = new TestUser(host);
  const refused = await send(bob, await openSession(bob));
  expect([refused.status, refused.body.code]).toEqual([503, 'model_budget_exhausted']);
  const seconds = Number(refused.headers.get('retry-after'));
  expect(seconds).toBeGreaterThan(0);
  expect(seconds).toBeLessThanOrEqual(24 * 60 * 60);
  await host.close();
  const again = await send(alice.at(await start(20)), sessionId);
  expect([again.status, again.body.code]).toEqual([503, 'model_budget_exhausted']);
  const { body } = await alice.at(host).request('GET', `/messages/${sessionId}`);
  expect(body.messages).toHaveLength(2);
});

it('MODEL_TOKENS_PER_DAY lets a turn finish its model call, then ends it with an error', async () => {
  const alice = new TestUser(await start(5));
  const live = await stream(alice, await openSession(alice), { message: 'hello' });
  const turn = await model.next();
  turn.say('Let me look');
  turn.call({ name: 'nothing', input: {} });
  const frames = await live.toEnd();
  expect(live.text).toBe('Let me look');
  expect(filterFrames({ frames }, 'error')).toMatchObject([
    { code: 'model_budget_exhausted', kind: 'server', retryable: true },
  ]);
  expect(frames.at(-1)?.data).toMatchObject({ status: 'failed', partialText: 'Let me look' });
});

it('MODEL_TOKENS_PER_DAY lets the call that exceeds it be the last of a finished turn', async () => {
  const alice = new TestUser(await start(5));
  const reply = send(alice, await openSession(alice));
  (await model.next()).answer('whole');
  expect((await reply).body).toMatchObject({ status: 'finished', message: { content: 'whole' } });
});
