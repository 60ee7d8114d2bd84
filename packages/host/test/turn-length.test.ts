import type { TurnContext } from '@sibyl/plugin-kit';
import { describe, expect, it } from 'vitest';
import { filterFrames } from './support/ask.js';
import { useControlledHost } from './support/controlled-host.js';
import type { ModelTurn } from './support/controlled-model.js';
import { startHost } from './support/host.js';
import { testPlugin } from './support/plugin.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const LIMIT = 20_000;

const writer = testPlugin('writer', {
  getSubAgents: () => [{ name: 'writer', description: 'Writes', prompt: 'You write.' }],
});

const flood = testPlugin('flood', {
  getTools: () => [
    {
      name: 'flood',
      description: 'Emits without end',
      inputSchema: { type: 'object' },
      run: async (_: unknown, { emit }: TurnContext) => {
        const text = 'x'.repeat(1_000_000);
        for (let i = 0; i < 200; i++)
          emit.renderComponent({
            componentName: 'c',
            args: { text },
            status: 'done',
            eventId: `${i}`,
          });
        return 'done';
      },
    },
  ],
});

const test = useControlledHost({
  plugins: [writer, flood],
  env: { TURN_MAX_CHARACTERS: `${LIMIT}` },
});

/** Streams until the host closes the connection. */
async function withoutEnd(turn: ModelTurn, go: (turn: ModelTurn) => void): Promise<void> {
  let hasLeft = false;
  void turn.left.then(() => {
    hasLeft = true;
  });
  while (!hasLeft) {
    go(turn);
    await new Promise(setImmediate);
  }
}

const chunk = 'an endless answer '.repeat(20);

describe('TURN_MAX_CHARACTERS', () => {
  it('ends a streamed turn of an endless model as failed, and keeps its text', async () => {
    const sessionId = await openSession(test.alice);
    const live = await stream(test.alice, sessionId, { message: 'continue' });
    await withoutEnd(await test.model.next(), (turn) => turn.say(chunk));
    const frames = await live.toEnd();
    expect(filterFrames({ frames }, 'error')).toMatchObject([
      {
        code: 'turn_too_long',
        kind: 'server',
        retryable: false,
        error: expect.stringContaining('20000 characters'),
      },
    ]);
    expect(frames.at(-1)?.data).toMatchObject({ status: 'failed', partialText: live.text });
    expect(live.text.length).toBeGreaterThan(0);
    expect(live.text.length).toBeLessThanOrEqual(LIMIT);
    const { body } = await test.alice.request('GET', `/messages/${sessionId}`);
    expect(body.messages.at(-1)).toMatchObject({ content: live.text, isComplete: false });
  });

  it('ends a JSON turn: 200 failed with its text, 422 turn_too_long with reasoning alone', async () => {
    for (const kind of ['say', 'think'] as const) {
      const sessionId = await openSession(test.alice);
      const reply = test.alice.request('POST', `/messages/${sessionId}`, {
        body: { message: 'x' },
      });
      await withoutEnd(await test.model.next(), (turn) => turn[kind](chunk));
      const { status, body } = await reply;
      if (kind === 'think') expect([status, body.code]).toEqual([422, 'turn_too_long']);
      else
        expect([status, body]).toMatchObject([
          200,
          { status: 'failed', warnings: [{ code: 'turn_too_long' }] },
        ]);
    }
  });

  it('counts what tools are called with, however many steps that takes', async () => {
    const live = await stream(test.alice, await openSession(test.alice), { message: 'call' });
    for (let i = 0; i < 2; i++)
      (await test.model.next()).call({
        name: 'nothing',
        input: { text: `${i}`.repeat(LIMIT / 2) },
      });
    const frames = await live.toEnd();
    expect(filterFrames({ frames }, 'error')).toMatchObject([{ code: 'turn_too_long' }]);
  });

  it('counts what sub-agents write', async () => {
    const live = await stream(test.alice, await openSession(test.alice), { message: 'delegate' });
    (await test.model.next()).call({ name: 'call_writer_agent', input: { task: 'write' } });
    await withoutEnd(await test.model.next(), (turn) => turn.say(chunk));
    const frames = await live.toEnd();
    expect(filterFrames({ frames }, 'error')).toMatchObject([{ code: 'turn_too_long' }]);
    expect(frames.at(-1)?.data).toMatchObject({ status: 'failed' });
    expect(test.model.arrived).toBe(0);
  });
});

it('a turn whose frames fill its log ends as failed', { timeout: 120_000 }, async () => {
  const reply = test.alice.request('POST', `/messages/${await openSession(test.alice)}`, {
    body: { message: 'flood' },
  });
  const turn = await test.model.next();
  turn.say('Here it comes');
  turn.call({ name: 'flood', input: {} });
  expect((await reply).body).toMatchObject({
    status: 'failed',
    warnings: [{ code: 'turn_too_long', message: expect.stringContaining('log') }],
  });
});

it('TURN_MAX_SECONDS ends a turn whose model never finishes, and keeps its text', async () => {
  // Long enough for the model's first words to arrive on a busy machine.
  const own = await startHost({ env: { ...test.model.env, TURN_MAX_SECONDS: '8' } });
  const bob = new TestUser(own);
  const sessionId = await openSession(bob);
  const reply = bob.request('POST', `/messages/${sessionId}`, { body: { message: 'x' } });
  const turn = await test.model.next();
  turn.say('all I have');
  await turn.left;
  expect((await reply).body).toMatchObject({
    status: 'failed',
    message: { content: 'all I have' },
    warnings: [{ code: 'turn_too_long', message: expect.stringContaining('8 seconds') }],
  });
  await own.close();
});
