import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { type EmbeddingServer, startEmbeddingServer } from './support/embedding-server.js';
import { startHost, type TestHost } from './support/host.js';
import { createTestDatabase, engines, type TestDatabase } from './support/test-database.js';
import { uploadText } from './support/upload.js';
import { TestUser } from './support/user.js';

describe.each(engines)('an embedding model on %s', (engine) => {
  let database: TestDatabase;
  let embeddings: EmbeddingServer;
  let model: ControlledModel;
  let host: TestHost;
  beforeAll(async () => {
    database = await createTestDatabase(engine);
    embeddings = await startEmbeddingServer();
    model = await startControlledModel();
    // The host embeds the files of all users.
    const env = { ...database.env, ...model.env, ...embeddings.env };
    host = await startHost({ hasTwins: false, env });
  });
  afterAll(async () => {
    await host?.close();
    model?.close();
    embeddings?.close();
    await database?.drop();
  });

  /** What a tool returns in a turn. */
  async function callTool(user: TestUser, name: string, input: object): Promise<string> {
    const { sessionId } = (await user.request('POST', '/sessions')).body;
    const reply = user.request('POST', `/messages/${sessionId}`, { body: { message: 'Go' } });
    (await model.next()).call({ name, input });
    const turn = await model.next();
    turn.answer('Done');
    await reply;
    return turn.results.join();
  }

  async function uploadNotes(user: TestUser): Promise<string> {
    const text = 'The old automobile is behind the house.';
    const { fileId } = await uploadText(user, 'notes.txt', text);
    await uploadText(user, 'other.txt', 'A physician works here.');
    await expect.poll(() => embeddings.texts.some((each) => each.includes(text))).toBe(true);
    return fileId;
  }

  it('finds passages of files that share no word with the query', async () => {
    const alice = new TestUser(host);
    await uploadNotes(alice);
    const search = () => callTool(alice, 'search_files', { query: 'where is my car' });
    await expect.poll(search).toContain('automobile');
    const found = await search();
    // Those that mean something else come later.
    expect(found.indexOf('automobile')).toBeLessThan(found.indexOf('physician') >>> 0);
  });

  it('finds nothing of other users', async () => {
    const bob = new TestUser(host);
    await uploadText(bob, 'mine.txt', 'Only a loaf.');
    await expect.poll(() => embeddings.texts.some((each) => each.includes('loaf'))).toBe(true);
    const search = () => callTool(bob, 'search_files', { query: 'bakery and car' });
    await expect.poll(search).toContain('loaf');
    expect(await search()).not.toContain('automobile');
  });

  it('finds facts that share no word with the query, and not those that were forgotten', async () => {
    const carol = new TestUser(host);
    const remember = (text: string) => carol.request('POST', '/memory', { body: { text } });
    const { id } = (await remember('Drives an old automobile')).body;
    await remember('Works as a physician');
    const find = async () =>
      (await carol.request('GET', '/memory?q=car')).body.facts.map(
        ({ text }: { text: string }) => text,
      );
    await expect.poll(async () => (await find())[0]).toBe('Drives an old automobile');
    const change = { body: { text: 'Buys bread' } };
    await carol.request('PATCH', `/memory/${id}`, change);
    await expect.poll(find).not.toContain('Drives an old automobile');
    await expect.poll(() => embeddings.texts.includes('Buys bread')).toBe(true);
    await carol.request('DELETE', `/memory/${id}`);
    expect(await find()).not.toContain('Buys bread');
  });

  it('receives no half of an emoji, which models refuse, at the end of a long query', async () => {
    const frank = new TestUser(host);
    const { sessionId } = (await frank.request('POST', '/sessions')).body;
    const message = `x${'😀'.repeat(5000)}`;
    const reply = frank.request('POST', `/messages/${sessionId}`, { body: { message } });
    (await model.next()).answer('Nice');
    await reply;
    const sent = embeddings.texts.filter((text) => text.startsWith('x😀'));
    expect(sent.length).toBeGreaterThan(0);
    expect(sent.every((text) => text.isWellFormed())).toBe(true);
  });

  it('that is down does not keep words from being found', async () => {
    const dave = new TestUser(host);
    embeddings.fail(500);
    try {
      await uploadText(dave, 'words.txt', 'The zebra is striped.');
      expect(await callTool(dave, 'search_files', { query: 'zebra' })).toContain('striped');
      await dave.request('POST', '/memory', { body: { text: 'Likes zebras' } });
      const { body } = await dave.request('GET', '/memory?q=zebras');
      expect(body.facts).toMatchObject([{ text: 'Likes zebras' }]);
    } finally {
      embeddings.fail(undefined);
    }
  });

  it('that refuses some texts is used for all others', async () => {
    const [grace, heidi] = [new TestUser(host), new TestUser(host)];
    embeddings.refuse('indigestible');
    const remember = (user: TestUser, text: string) =>
      user.request('POST', '/memory', { body: { text } });
    for (let i = 0; i < 40; i++) await remember(grace, `An indigestible fact, number ${i}`);
    await remember(grace, 'Likes every loaf');
    await remember(heidi, 'Drives an old automobile');
    const find = async (user: TestUser, word: string) =>
      (await user.request('GET', `/memory?q=${word}`)).body.facts;
    const first = { text: 'Likes every loaf' };
    await expect.poll(() => find(grace, 'bakery')).toMatchObject([first]);
    const other = { text: 'Drives an old automobile' };
    await expect.poll(() => find(heidi, 'vehicle')).toMatchObject([other]);
    await uploadText(grace, 'refused.txt', `Indigestible: ${'indigestible '.repeat(200)}`);
    await uploadText(grace, 'later.txt', 'The hospital is behind the house.');
    const search = () => callTool(grace, 'search_files', { query: 'doctor' });
    await expect.poll(search).toContain('hospital');
  });

  it('is not asked for the old meaning of a fact whose new text it refuses', async () => {
    const ivan = new TestUser(host);
    embeddings.refuse('unspeakable');
    const created = await ivan.request('POST', '/memory', { body: { text: 'Eats a loaf' } });
    const find = async () => (await ivan.request('GET', '/memory?q=bakery')).body.facts;
    await expect.poll(find).toMatchObject([{ text: 'Eats a loaf' }]);
    const change = { body: { text: 'Does unspeakable things' } };
    await ivan.request('PATCH', `/memory/${created.body.id}`, change);
    // Embedded after it.
    await ivan.request('POST', '/memory', { body: { text: 'Visits a physician' } });
    const isKnown = () => embeddings.texts.includes('Visits a physician');
    await expect.poll(isKnown).toBe(true);
    expect(await find()).not.toMatchObject([change.body]);
  });

  it('deletes the vectors of a file with it', async () => {
    const erin = new TestUser(host);
    const fileId = await uploadNotes(erin);
    const search = () => callTool(erin, 'search_files', { query: 'car' });
    await expect.poll(search).toContain('automobile');
    await erin.request('DELETE', `/files/${fileId}`);
    expect(await search()).not.toContain('automobile');
  });
});
