import { defineTool } from '@sibyl/plugin-kit';
import { generateSigner } from '@sibyl/ucan';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { testPlugin } from './support/plugin.js';
import { openSession, stream } from './support/stream.js';
import { createTestDatabase, engines, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

const operator = generateSigner();
const MODEL = 'openai-compatible/controlled';

const careful = testPlugin('careful', {
  getTools: () => [
    defineTool({
      name: 'transfer',
      description: 'Transfers.',
      inputSchema: z.object({}),
      needsApproval: true,
      run: () => 'done',
    }),
  ],
});

describe.each(engines)('GET /usage on %s', (engine) => {
  let test: TestDatabase;
  let model: ControlledModel;
  let host: TestHost;

  beforeAll(async () => {
    test = await createTestDatabase(engine);
    model = await startControlledModel();
    const prices = { input: 1_000_000, output: 2_000_000 };
    const MODEL_SETTINGS = JSON.stringify({ [MODEL]: { prices } });
    const env = { ...model.env, ...test.env, MODEL_SETTINGS, OPERATORS: operator.did };
    // Operators see the usage of all users.
    host = await startHost({ hasTwins: false, env, plugins: [careful] });
  });

  afterAll(async () => {
    await host?.close();
    model?.close();
    await test?.drop();
  });

  async function say(user: TestUser, sessionId: string): Promise<void> {
    const live = await stream(user, sessionId, { message: 'hello' });
    (await model.next()).answer('Hi');
    await live.toEnd();
  }

  const read = async (user: TestUser, query = '') =>
    (await user.request('GET', `/usage${query}`)).body;

  it('GET /usage adds up turns, tokens and cost by day, model and session, titles included', async () => {
    const [user, other] = [new TestUser(host), new TestUser(host)];
    const first = await openSession(user);
    await say(user, first);
    // Otherwise the second turn generates a title too.
    await expect.poll(async () => (await read(user)).total.inputTokens).toBe(14);
    await say(user, first);
    const second = await openSession(user);
    await say(user, second);
    // Each call costs 7 tokens and 3; three answers and two titles.
    const five = { inputTokens: 35, outputTokens: 15, cachedTokens: 0, cost: 65 };
    await expect.poll(async () => (await read(user)).total).toEqual({ turns: 3, ...five });
    const usage = await read(user);
    const today = new Date().toISOString().slice(0, 10);
    expect(usage.days).toEqual([{ day: today, turns: 3, ...five }]);
    expect(usage.models).toEqual([{ model: MODEL, turns: 3, ...five }]);
    const ids = usage.sessions.map(({ sessionId }: { sessionId: string }) => sessionId);
    expect(ids).toEqual([first, second]);
    expect(usage.sessions[0]).toMatchObject({ turns: 2, inputTokens: 21, title: 'hello' });
    expect((await read(other)).total.turns).toBe(0);
    const { body } = await new TestUser(host, operator).request('GET', '/operator/users');
    const { cachedTokens: _, ...counted } = five;
    expect(body.users).toContainEqual(
      expect.objectContaining({ user: user.did, turns: 3, ...counted }),
    );
  });

  it('GET /usage keeps what deleted sessions used', async () => {
    const user = new TestUser(host);
    const sessionId = await openSession(user);
    await say(user, sessionId);
    await expect.poll(async () => (await read(user)).total.inputTokens).toBe(14);
    const before = await read(user);
    await user.request('DELETE', `/sessions/${sessionId}`);
    const after = await read(user);
    expect(after.total).toEqual(before.total);
    expect(after.models).toEqual(before.models);
    expect(after.sessions[0]).not.toHaveProperty('title');
  });

  it('GET /usage counts the cost of answers that were aborted or broke off', async () => {
    const user = new TestUser(host);
    const sessionId = await openSession(user);
    const aborted = await stream(user, sessionId, { message: 'abort this' });
    (await model.next()).say('Hel');
    await aborted.untilEvent('message');
    await user.request('POST', '/messages/abort', { body: { sessionId } });
    const { usage } = (await aborted.toEnd()).at(-1)?.data ?? {};
    expect(usage.inputTokens).toBeGreaterThan(0);
    expect(usage.cost).toBe(usage.inputTokens + 2 * usage.outputTokens);
    const broken = await stream(user, sessionId, { message: 'break off' });
    const turn = await model.next();
    turn.say('Hel');
    turn.fail({ message: 'overloaded', type: 'server_error' });
    await broken.toEnd();
    const { total } = await read(user);
    expect(total).toMatchObject({ turns: 2 });
    expect(total.inputTokens).toBeGreaterThan(usage.inputTokens);
    expect(total.cost).toBe(total.inputTokens + 2 * total.outputTokens);
  });

  it('operators see what users have used also of turns that wait for an answer, and of deleted sessions', async () => {
    const user = new TestUser(host);
    const sessionId = await openSession(user);
    await say(user, sessionId);
    await expect.poll(async () => (await read(user)).total.inputTokens).toBe(14);
    const expectSame = async (turns: number) => {
      const { cachedTokens: _, ...used } = (await read(user)).total;
      expect(used).toMatchObject({ turns });
      const path = `/operator/users?user=${user.did}`;
      const { body } = await new TestUser(host, operator).request('GET', path);
      expect(body.users).toEqual([expect.objectContaining({ user: user.did, ...used })]);
    };
    await expectSame(1);
    const live = await stream(user, sessionId, { message: 'transfer' });
    (await model.next()).call({ name: 'transfer', input: {} });
    await live.toEnd();
    await expectSame(2);
    await user.request('POST', '/messages/abort', { body: { sessionId } });
    const kept = await openSession(user);
    await say(user, kept);
    await expect.poll(async () => (await read(user)).total.inputTokens).toBe(35);
    await user.request('DELETE', `/sessions/${sessionId}`);
    await expectSame(3);
    await user.request('DELETE', `/sessions/${kept}`);
    await expectSame(3);
  });

  it('GET /usage names a bad query', async () => {
    const { status, body } = await new TestUser(host).request('GET', '/usage?days=0');
    expect(status).toBe(400);
    expect(body.message[0]).toContain('days');
  });
});
