import { UserPreferences } from '@sibyl/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { useTool } from '../../../packages/host/test/support/ask.js';
import {
  type ControlledModel,
  startControlledModel,
} from '../../../packages/host/test/support/controlled-model.js';
import { startHost, type TestHost } from '../../../packages/host/test/support/host.js';
import { openSession, stream } from '../../../packages/host/test/support/stream.js';
import {
  createTestDatabase,
  engines,
  type TestDatabase,
} from '../../../packages/host/test/support/test-database.js';
import { TestUser } from '../../../packages/host/test/support/user.js';

describe.each(engines)('preferences on %s', (engine) => {
  let database: TestDatabase;
  let model: ControlledModel;
  let host: TestHost;

  const start = (more: Record<string, string> = {}) =>
    startHost({ env: { ...model.env, ...database.env, ...more } });

  /** Restarts the host, and returns the user at its new address. */
  async function restart(user: TestUser, more: Record<string, string> = {}): Promise<TestUser> {
    await host.close();
    host = await start(more);
    return user.at({ url: host.url, did: host.did });
  }

  beforeAll(async () => {
    database = await createTestDatabase(engine);
    model = await startControlledModel();
    host = await start();
  });
  afterAll(async () => {
    await host?.close();
    model?.close();
    await database?.drop();
  });

  /** Has the agent set preferences in a new session; what the tool answered. */
  const set = async (user: TestUser, input: object) =>
    (await useTool({ user, model }, 'set_user_preferences', input)).data;

  /** The first prompt of a new session, and the tools that come with it. */
  async function firstCall(user: TestUser) {
    const reply = await stream(user, await openSession(user), { message: 'Hello' });
    const asked = await model.next();
    asked.finish();
    await reply.toEnd();
    const { messages, tools = [] } = asked.body;
    const names = tools.map((tool: { function: { name: string } }) => tool.function.name);
    return { prompt: String(messages[0].content), tools: names };
  }

  const read = async (user: TestUser) => {
    const { status, body } = await user.request('GET', '/user-preferences');
    return status === 200 ? UserPreferences.parse(body) : status;
  };

  it('PATCH /user-preferences merges fields, clears them with null, and refuses others', async () => {
    const user = new TestUser(host);
    const patch = (body: object) => user.request('PATCH', '/user-preferences', { body });
    expect(await patch({ userName: 'Sam', length: 'concise' })).toMatchObject({
      status: 200,
      body: { userName: 'Sam', length: 'concise' },
    });
    expect((await patch({ userName: null })).body).not.toHaveProperty('userName');
    expect(await read(user)).toMatchObject({ length: 'concise' });
    expect((await firstCall(user)).prompt).toMatch(/concise|short/i);
    expect((await patch({ length: 'endless' })).status).toBe(400);
    expect((await patch({ unknown: 'x' })).status).toBe(400);
    expect(await read(new TestUser(host))).toEqual({});
  });

  it('are none at first', async () => {
    const alice = new TestUser(host);
    expect((await alice.request('GET', '/user-preferences')).body).toEqual({});
    expect((await firstCall(alice)).prompt).not.toContain('What the user prefers');
    expect((await fetch(`${host.url}/user-preferences`)).status).toBe(401);
  });

  it('are merged, cleared by null, and shown by the route', async () => {
    const alice = new TestUser(host);
    await set(alice, { tone: 'warm', length: 'concise' });
    const done = await set(alice, { tone: null, language: 'Spanish' });
    expect(done.status).toBe('done');
    const kept = { length: 'concise', language: 'Spanish', updatedAt: expect.any(String) };
    expect(JSON.parse(done.output).preferences).toEqual(kept);
    expect(await read(alice)).toEqual(kept);
    expect(await read(new TestUser(host))).toEqual({});
  });

  it('reach the first prompt of the next session, every field, also after a restart', async () => {
    const alice = new TestUser(host);
    const all = {
      agentName: 'Delphi',
      userName: 'Sam',
      language: 'Swahili',
      tone: 'playful',
      formality: 'technical',
      length: 'detailed',
      format: 'numbered lists',
      customInstructions: 'Mention the moon.',
    };
    await set(alice, all);
    const { prompt } = await firstCall(alice);
    expect(prompt).toMatch(/^You are "?Delphi"?, an AI agent/);
    for (const text of ['Sam', 'Swahili', 'playful', 'numbered lists', 'Mention the moon.'])
      expect(prompt).toContain(text);
    expect(prompt).toMatch(/Be technical.*Be detailed/s);
    const { updatedAt } = UserPreferences.parse(await read(alice));
    expect(prompt).toContain(updatedAt);

    const sameUser = await restart(alice);
    expect((await firstCall(sameUser)).prompt).toContain('Mention the moon.');
    expect(await read(sameUser)).toMatchObject(all);
  });

  it.each([
    [{}, /Nothing to change/],
    [{ mood: 'good' }, /mood/],
    [{ length: 'endless' }, /length/],
    [{ agentName: 'x'.repeat(81) }, /agentName/],
    [{ updatedAt: '2020-01-01T00:00:00.000Z' }, /updatedAt/],
  ])('refuses %j and keeps what was there', async (input, text) => {
    const alice = new TestUser(host);
    await set(alice, { tone: 'calm' });
    const refused = await set(alice, input);
    expect(refused.status).toBe('error');
    expect(refused.output).toMatch(text);
    expect(await read(alice)).toMatchObject({ tone: 'calm' });
  });

  it('loses none of many changes at once', async () => {
    const alice = new TestUser(host);
    const changes = [{ tone: 'calm' }, { userName: 'Ada' }, { format: 'tables' }];
    const replies = await Promise.all(
      changes.map(async () => stream(alice, await openSession(alice), { message: 'Change' })),
    );
    const calls = [await model.next(), await model.next(), await model.next()];
    for (const [i, call] of calls.entries())
      call.call({ name: 'set_user_preferences', input: changes[i] ?? {} });
    for (const _ of changes) (await model.next()).finish();
    await Promise.all(replies.map((reply) => reply.toEnd()));
    expect(await read(alice)).toMatchObject(Object.assign({}, ...changes));
  });

  it('are gone without a trace when the feature is off, and back when it is on', async () => {
    const alice = new TestUser(host);
    await set(alice, { language: 'Finnish' });
    const there = await restart(alice, { FEATURES: 'user-preferences=false' });
    const { prompt, tools } = await firstCall(there);
    expect(prompt).not.toMatch(/Finnish|User preferences|What the user prefers/);
    expect(tools).not.toContain('set_user_preferences');
    expect(await read(there)).toBe(404);
    expect((await firstCall(await restart(alice))).prompt).toContain('Finnish');
  });
});

describe('the offline model', () => {
  let host: TestHost;
  beforeAll(async () => {
    host = await startHost();
  });
  afterAll(() => host.close());

  async function say(user: TestUser, message: string) {
    const sessionId = await openSession(user);
    await user.request('POST', `/messages/${sessionId}`, { body: { message } });
    const preferences = (await user.request('GET', '/user-preferences')).body;
    const { facts } = (await user.request('GET', '/memory')).body;
    return { preferences, facts: facts.map(({ text }: { text: string }) => text) };
  }

  it('keeps a lasting wish as a preference', async () => {
    const { preferences, facts } = await say(
      new TestUser(host),
      'Please answer in Spanish from now on.',
    );
    expect(preferences).toMatchObject({ language: 'Spanish' });
    expect(facts).toEqual([]);
  });

  it('keeps nothing of a wish for one answer', async () => {
    const kept = await say(new TestUser(host), 'Just this once, use bullets.');
    expect(kept).toEqual({ preferences: {}, facts: [] });
  });

  it('keeps a fact in memory', async () => {
    const { preferences, facts } = await say(new TestUser(host), 'I work on soil carbon in Kenya');
    expect(preferences).toEqual({});
    expect(facts).toEqual([expect.stringContaining('soil carbon in Kenya')]);
  });
});
