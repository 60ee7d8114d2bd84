import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { defineSubAgent, defineTool } from '@sibyl/plugin-kit';
import { describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { ask, call, say } from './support/ask.js';
import { useControlledHost } from './support/controlled-host.js';
import { startHost } from './support/host.js';
import { testPlugin } from './support/plugin.js';
import { openSession, stream } from './support/stream.js';
import { TestGate, useGate } from './support/test-gate.js';
import { TestUser } from './support/user.js';

const MAIN = 'openai-compatible/controlled';
const SMALL = 'openai-compatible/small';
const bank = useGate();

const think = defineTool({
  name: 'think',
  description: 'Asks another model',
  inputSchema: z.object({}),
  run: async (_, { llm }) => (await llm.get('utility').generate({ prompt: 'Why?' })).text,
});
const helper = defineSubAgent({ name: 'helper', description: 'Helps', prompt: 'You help.' });

const test = useControlledHost({
  bundled: [],
  env: { MODEL_SMALL: SMALL },
  plugins: [
    testPlugin('bank', {
      getMessageGate: () => bank,
      getTools: () => [think],
      getSubAgents: () => [helper],
    }),
  ],
});

const send = (sessionId: string, body: object, headers: Record<string, string> = {}) =>
  test.alice.request('POST', `/messages/${sessionId}`, { body, headers });

describe('TurnHold.settle is called once, with all usage', () => {
  it('when it is finished, title included', async () => {
    const checked: number[] = [];
    bank.current.check = (used) =>
      void checked.push(used.reduce((sum, { input }) => sum + input, 0));
    await ask(test, [
      call(['think'], ['call_helper_agent', { task: 'Help.' }]),
      say('a'),
      say('b'),
      say('done'),
    ]);
    // The title follows the answer.
    expect(await bank.current.settledOnce()).toEqual([
      { model: MAIN, input: 21, output: 9, cached: 0 },
      { model: SMALL, input: 14, output: 6, cached: 0 },
    ]);
    expect(checked[0]).toBe(0);
    expect(checked).toHaveLength(5);
  });

  it('with the usage that the run has', async () => {
    const { sessionId } = await ask(test, [call(['think']), say('a'), say('done')]);
    const database = new DatabaseSync(join(test.host.dataDir, 'sibyl.db'), { readOnly: true });
    const query = 'select input_tokens as input from runs where session_id = ?';
    expect(database.prepare(query).get(sessionId)).toMatchObject({ input: 21 });
    database.close();
  });

  it('when it is aborted in the middle of an answer', async () => {
    const sessionId = await openSession(test.alice);
    const live = await stream(test.alice, sessionId, { message: 'a long story' });
    (await test.model.next()).say('Once upon a time there was a model that');
    await live.untilEvent('message');
    await test.alice.request('POST', '/messages/abort', { body: { sessionId } });
    const [use] = (await bank.current.settledOnce()) ?? [];
    expect(use?.model).toBe(MAIN);
    expect(use?.input).toBeGreaterThan(100);
    expect(use?.output).toBeGreaterThanOrEqual(10);
  });

  it('when the model cannot be reached', async () => {
    const env = { MODEL: 'openai-compatible/x', MODEL_BASE_URL: 'http://127.0.0.1:9/v1' };
    const plugins = [testPlugin('bank', { getMessageGate: () => bank })];
    const host = await startHost({ bundled: [], plugins, env });
    onTestFinished(() => host.close());
    const bob = new TestUser(host);
    const live = await stream(bob, await openSession(bob), { message: 'hi' });
    expect((await live.toEnd()).at(-1)?.data).toMatchObject({ status: 'failed' });
    expect(await bank.current.settledOnce()).toEqual([]);
  });

  it('when the turn is aborted in the queue', async () => {
    const sessionId = await openSession(test.alice);
    const first = await stream(test.alice, sessionId, { message: 'one' });
    const turn = await test.model.next();
    const queued = await stream(test.alice, sessionId, { message: 'two', requestId: 'waits' });
    await test.alice.request('DELETE', `/sessions/${sessionId}`);
    await turn.left;
    await Promise.all([first.toEnd(), queued.toEnd()]);
    await expect.poll(() => bank.current.settled.length).toBe(2);
    expect(bank.current.settled.find(({ requestId }) => requestId === 'waits')?.used).toEqual([]);
  });

  it('when the queue is full', async () => {
    const sessionId = await openSession(test.alice);
    const live = await stream(test.alice, sessionId, { message: 'one' });
    const turn = await test.model.next();
    const { status } = await send(sessionId, { message: 'two', multitask: 'reject' });
    expect(status).toBe(409);
    expect(await bank.current.settledOnce()).toEqual([]);
    turn.answer('ok');
    await live.toEnd();
  });

  it('when it cannot be stored', async () => {
    const sessionId = await openSession(test.alice);
    const database = new DatabaseSync(join(test.host.dataDir, 'sibyl.db'));
    database.exec('pragma busy_timeout = 5000');
    const refusal = "begin select raise(abort, 'refused by the test'); end";
    database.exec(`create trigger refuse before insert on runs ${refusal}`);
    const { status } = await send(sessionId, { message: 'hi' });
    database.exec('drop trigger refuse');
    database.close();
    expect(status).toBeGreaterThanOrEqual(500);
    expect(await bank.current.settledOnce()).toEqual([]);
  });

  it('for repeated requests with one idempotency key', async () => {
    const sessionId = await openSession(test.alice);
    const headers = { 'idempotency-key': 'once' };
    const both = [1, 2].map(() => send(sessionId, { message: 'hi' }, headers));
    (await test.model.next()).answer('ok');
    await Promise.all(both);
    expect((await send(sessionId, { message: 'hi' }, headers)).status).toBe(200);
    expect(bank.current.asked).toHaveLength(1);
    await bank.current.settledOnce();
  });

  it('even if the gate fails at first', async () => {
    let attempts = 0;
    bank.current.settle = () => {
      attempts += 1;
      if (attempts < 3) throw new Error('no disk');
    };
    await ask(test, [say()]);
    await expect.poll(() => attempts).toBe(3);
    expect(new Set(bank.current.settled.map(({ used }) => JSON.stringify(used))).size).toBe(1);
  });

  it('before the host is closed', async () => {
    const own = new TestGate();
    const plugins = [testPlugin('bank', { getMessageGate: () => own })];
    const host = await startHost({ bundled: [], plugins, env: test.model.env });
    const bob = new TestUser(host);
    const release = Promise.withResolvers<void>();
    own.settle = () => release.promise;
    await ask({ model: test.model, alice: bob }, [say()]);
    await expect.poll(() => own.settled.length).toBe(1);
    let isClosed = false;
    const closing = host.close().then(() => {
      isClosed = true;
    });
    await expect
      .poll(() =>
        fetch(host.url).then(
          () => 'up',
          () => 'down',
        ),
      )
      .toBe('down');
    expect(isClosed).toBe(false);
    release.resolve();
    await closing;
    expect(own.settled).toHaveLength(1);
  });
});
