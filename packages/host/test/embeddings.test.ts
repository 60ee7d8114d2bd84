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

  it('deletes the vectors of a file with it', async () => {
    const erin = new TestUser(host);
    const fileId = await uploadNotes(erin);
    const search = () => callTool(erin, 'search_files', { query: 'car' });
    await expect.poll(search).toContain('automobile');
    await erin.request('DELETE', `/files/${fileId}`);
    expect(await search()).not.toContain('automobile');
  });
});
