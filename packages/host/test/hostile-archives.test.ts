import { buffer } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ZipFile } from 'yazl';
import { readArrayItems, readLines } from '../src/own-data/archive-reader.js';
import { createArchive, importArchive } from './support/archives.js';
import { startHost, type TestHost } from './support/host.js';
import { createTestDatabase, engines, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

const createdAt = 1_700_000_000_000;

function session(id: string) {
  const times = { created_at: createdAt, last_updated_at: createdAt };
  return { id, title: 'A session', ...times, room_id: '', last_seq: 0, last_turn: 0 };
}

function message(sessionId: string, seq: number, more = {}) {
  return {
    ...{ id: crypto.randomUUID(), session_id: sessionId, turn: seq, seq, type: 'human' },
    ...{ content: `message ${seq}`, request_id: 'r', is_complete: 1, parent: null },
    ...{ created_at: createdAt, ...more },
  };
}

function conversation(id: string, text: string, more = {}) {
  const content = { content_type: 'text', parts: [text] };
  return {
    ...{ title: id, create_time: 1_700_000_000, conversation_id: id, current_node: 'q' },
    mapping: { q: { parent: null, message: { author: { role: 'user' }, content } } },
    ...more,
  };
}

/** Empty arrays, which take three bytes each until they are parsed. */
const many = (count: number) => Array.from({ length: count }, () => []);

describe.each(engines)('POST /me/import on %s', (engine) => {
  let database: TestDatabase;
  let host: TestHost;

  beforeAll(async () => {
    database = await createTestDatabase(engine);
    host = await startHost({ env: database.env });
  });
  afterAll(async () => {
    await host.close();
    await database.drop();
  });

  it('refuses rows with more values than a table has columns', async () => {
    const user = new TestUser(host);
    const [id, large] = [crypto.randomUUID(), crypto.randomUUID()];
    const sessions = [session(id), { ...session(large), more: many(20_000) }];
    const parts = JSON.stringify(many(200_000));
    const messages = [message(id, 1), message(id, 2, { parts }), message(large, 1)];
    const archive = await createArchive({
      sessions: sessions.map((row) => JSON.stringify(row)),
      messages: messages.map((row) => JSON.stringify(row)),
    });
    const job = await importArchive(user, archive);
    expect(job).toMatchObject({ status: 'finished', refused: 2 });
    expect(job.stored).toMatchObject({ sessions: 1, messages: 2 });
  });

  it('refuses a manifest with more files than an archive may have', async () => {
    const files = many(1_100_000);
    const { status, error } = await importArchive(
      new TestUser(host),
      await createArchive({}, { more: files }),
    );
    expect({ status, error }).toEqual({
      status: 'failed',
      error: 'manifest.json has an unknown format',
    });
  });

  it('refuses a conversation of ChatGPT with very many values, and stores the others', async () => {
    const user = new TestUser(host);
    const conversations = [
      conversation('c1', 'What does "[[{,{" mean? \\'),
      conversation('c2', 'Hello', { plugin_ids: many(300_000) }),
      conversation('c3', ',[{'.repeat(200_000)),
    ];
    const job = await importArchive(user, JSON.stringify(conversations));
    expect(job).toMatchObject({ status: 'finished', refused: 1, stored: { sessions: 2 } });
  });

  it('refuses rows that are nested deeply, and stores the others', async () => {
    const user = new TestUser(host);
    const id = crypto.randomUUID();
    const deep = `{"more":${'['.repeat(9_000)}${']'.repeat(9_000)}}`;
    const archive = await createArchive({
      sessions: [deep, JSON.stringify(session(id))],
      messages: [JSON.stringify(message(id, 1)), deep],
    });
    const job = await importArchive(user, archive);
    expect(job).toMatchObject({ status: 'finished', refused: 2 });
    expect(job.stored).toMatchObject({ sessions: 1, messages: 1 });
  });

  it('reports a file whose checksum does not fit', async () => {
    const zip = new ZipFile();
    const text = JSON.stringify([conversation('c1', 'Hello')]);
    zip.addBuffer(Buffer.from(text), 'conversations.json', { compress: false });
    zip.end();
    const archive = await buffer(zip.outputStream);
    archive.write('J', archive.indexOf('Hello'));
    const job = await importArchive(new TestUser(host), archive);
    expect(job).toMatchObject({ status: 'failed', error: 'conversations.json is damaged' });
  });
});

it.each([
  ['readLines', readLines, '{}\n'],
  ['readArrayItems', readArrayItems, '{},'],
] as const)('%s lets the host work while a chunk has very many items', async (_, read, item) => {
  const chunks = async function* () {
    yield Buffer.from(`[${item.repeat(200_000)}{}]`);
  };
  let turns = 0;
  const timer = setInterval(() => {
    turns += 1;
  }, 1);
  let count = 0;
  for await (const text of read(chunks())) count += text.length > 0 ? 1 : 0;
  clearInterval(timer);
  expect(count).toBeGreaterThan(200_000);
  expect(turns).toBeGreaterThan(2);
});
