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

describe.each(engines)('memory on %s', (engine) => {
  let database: TestDatabase;
  let model: ControlledModel;
  let host: TestHost;

  beforeAll(async () => {
    database = await createTestDatabase(engine);
    model = await startControlledModel();
    host = await startHost({ env: { ...model.env, ...database.env } });
  });

  afterAll(async () => {
    await host?.close();
    model?.close();
    await database?.drop();
  });

  const use = (user: TestUser, name: string, input: object) =>
    useTool({ user, model }, name, input);

  /** The system prompt for this message of this user. */
  async function promptFor(user: TestUser, message: string): Promise<string> {
    const reply = await stream(user, await openSession(user), { message });
    const asked = await model.next();
    asked.say('Hm');
    asked.finish();
    await reply.toEnd();
    return asked.notes.join();
  }

  it('finds in a later session what was remembered, for this user alone', async () => {
    const [alice, bob] = [new TestUser(host), new TestUser(host)];
    const kept = await use(alice, 'remember', { fact: 'Alice works on soil carbon in Kenya' });
    expect(kept).toMatchObject({
      status: 'done',
      output: { text: expect.stringContaining('Kenya') },
    });
    await use(alice, 'remember', { fact: 'Alice has a dog named Rex' });
    const found = await use(alice, 'recall', { query: 'carbon projects' });
    expect(found.output.facts.map(({ text }: { text: string }) => text)).toEqual([
      'Alice works on soil carbon in Kenya',
    ]);
    expect((await use(bob, 'recall', { query: 'carbon' })).output).toEqual({ facts: [] });
    expect(await promptFor(alice, 'How is my carbon work going?')).toContain(
      'soil carbon in Kenya',
    );
    expect(await promptFor(bob, 'How is my carbon work going?')).not.toContain('Kenya');
  });

  it('keeps a fact once', async () => {
    const user = new TestUser(host);
    await use(user, 'remember', { fact: 'Lives in Nairobi' });
    await use(user, 'remember', { fact: 'lives in nairobi' });
    for (const fact of ['Über Köln gezogen', 'Über Köln gezogen', 'ÜBER KÖLN GEZOGEN'])
      await use(user, 'remember', { fact });
    const { body } = await user.request('GET', '/memory');
    const facts = [{ text: 'Über Köln gezogen' }, { text: 'Lives in Nairobi' }];
    expect(body).toMatchObject({ total: 2, facts });
  });

  it('forgets by tool and by route, and only what is the caller’s', async () => {
    const [user, stranger] = [new TestUser(host), new TestUser(host)];
    const { output: first } = await use(user, 'remember', { fact: 'Likes tea very much' });
    const { output: second } = await use(user, 'remember', { fact: 'Likes coffee even more' });
    expect((await use(stranger, 'forget', { id: first.id })).status).toBe('error');
    expect((await stranger.request('DELETE', `/memory/${second.id}`)).status).toBe(404);
    expect((await use(user, 'forget', { id: first.id })).status).toBe('done');
    expect((await user.request('DELETE', `/memory/${second.id}`)).status).toBe(200);
    expect((await user.request('GET', '/memory')).body).toEqual({ facts: [], total: 0 });
  });

  it('pages, and names a bad query', async () => {
    const user = new TestUser(host);
    for (const fact of ['one fact', 'two facts', 'three facts'])
      await use(user, 'remember', { fact });
    const { body } = await user.request('GET', '/memory?limit=2&offset=1');
    expect(body.facts.map(({ text }: { text: string }) => text)).toEqual(['two facts', 'one fact']);
    expect((await user.request('GET', '/memory?limit=0')).status).toBe(400);
    expect((await fetch(`${host.url}/memory`)).status).toBe(401);
  });

  it('POST, PATCH and GET /memory edit and search facts, and show where they were learned', async () => {
    const [user, stranger] = [new TestUser(host), new TestUser(host)];
    const { output } = await use(user, 'remember', { fact: 'Sails a small boat' });
    const { body: sessions } = await user.request('GET', '/sessions');
    expect(output).toMatchObject({ sessionId: sessions.sessions[0].sessionId });
    const added = await user.request('POST', '/memory', { body: { text: 'Lives in Mombasa' } });
    expect(added).toMatchObject({ status: 200, body: { text: 'Lives in Mombasa' } });
    expect(added.body).not.toHaveProperty('sessionId');
    const path = `/memory/${output.id}`;
    const changed = await user.request('PATCH', path, { body: { text: 'Sails a large ketch' } });
    expect(changed.body).toMatchObject({
      id: output.id,
      text: 'Sails a large ketch',
      createdAt: output.createdAt,
      updatedAt: expect.any(String),
      sessionId: output.sessionId,
    });
    const search = async (who: TestUser, q: string) =>
      (await who.request('GET', `/memory?q=${q}`)).body;
    expect(await search(user, 'ketch')).toEqual({ facts: [changed.body], total: 1 });
    expect(await search(user, 'boat')).toEqual({ facts: [], total: 0 });
    expect(await search(stranger, 'ketch')).toEqual({ facts: [], total: 0 });
    const edit = { body: { text: 'is mine now' } };
    expect((await stranger.request('PATCH', path, edit)).status).toBe(404);
    const same = { body: { text: 'lives in mombasa' } };
    expect((await user.request('PATCH', path, same)).status).toBe(400);
    expect((await user.request('POST', '/memory', { body: { text: ' ' } })).status).toBe(400);
  });

  it.each([
    ['喜欢喝绿茶', '茶'],
    ['喜欢喝绿茶', '你想喝绿茶吗'],
    ['京都に住んでいます', '京都'],
    ['ชอบดื่มกาแฟ', 'กาแฟ'],
    ['हिन्दी बोलते हैं', 'हिन्दी'],
    ['Works in a café in São Paulo', 'cafe'],
    ['Works in a cafe in Sao Paulo', 'São'],
    ['Μένει στην Αθήνα', 'αθηνα'],
    ['Works for example.com', 'example'],
    ['Works for e-mail@example.com', 'mail'],
  ])('GET /memory finds %s by %s', async (text, query) => {
    const user = new TestUser(host);
    for (const each of [text, 'Something else', '完全不同的事情'])
      await user.request('POST', '/memory', { body: { text: each } });
    const { body } = await user.request('GET', `/memory?q=${encodeURIComponent(query)}`);
    expect(body).toMatchObject({ facts: [{ text }], total: 1 });
  });

  it.each(['"quoted" OR *', "it's -- tricky", '%_%', '天気', ':)', 'NEAR(a b)'])(
    'takes %s as words, not as search syntax',
    async (query) => {
      const { status } = await use(new TestUser(host), 'recall', { query });
      expect(status).toBe('done');
    },
  );
});
