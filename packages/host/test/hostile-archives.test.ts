import { createHash } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ImportJob } from '@sibyl/protocol';
import { generateSigner } from '@sibyl/ucan';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ZipFile } from 'yazl';
import { MANIFEST, SIGNATURE, signManifest } from '../src/own-data/archive-format.js';
import { startHost, type TestHost } from './support/host.js';
import { createTestDatabase, engines, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

/** An archive of these lines by table, with a manifest that fits. */
async function createArchive(tables: Readonly<Record<string, readonly string[]>>, more = {}) {
  const files = Object.entries(tables).map(([table, lines]) => {
    const data = Buffer.from(lines.join('\n'));
    const sha256 = createHash('sha256').update(data).digest('hex');
    return { path: `tables/${table}/000001.jsonl`, data, bytes: data.length, sha256 };
  });
  const manifest = Buffer.from(
    JSON.stringify({
      format: 'sibyl-export',
      version: 1,
      owner: 'did:key:zSomebody',
      oracle: { did: 'did:key:zOther', name: 'Other' },
      createdAt: new Date().toISOString(),
      files: files.map(({ data: _, ...file }) => file),
      omitted: [],
      ...more,
    }),
  );
  const zip = new ZipFile();
  for (const { path, data } of files) zip.addBuffer(data, path);
  zip.addBuffer(manifest, MANIFEST);
  zip.addBuffer(signManifest(generateSigner(), manifest), SIGNATURE);
  zip.end();
  return buffer(zip.outputStream);
}

async function importInto(user: TestUser, body: Buffer | string): Promise<ImportJob> {
  const response = await fetch(`${user.host.url}/me/import`, {
    method: 'POST',
    headers: { ...user.headers, 'content-type': 'application/octet-stream' },
    body: new Uint8Array(Buffer.from(body as string)),
  });
  const { id } = (await response.json()) as ImportJob;
  for (;;) {
    const { body: job } = await user.request('GET', `/me/import/${id}`);
    if (job.status !== 'running') return job;
    await sleep(20);
  }
}

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
    const job = await importInto(user, archive);
    expect(job).toMatchObject({ status: 'finished', refused: 2 });
    expect(job.stored).toMatchObject({ sessions: 1, messages: 2 });
  });

  it('refuses a manifest with more files than an archive may have', async () => {
    const files = many(1_100_000);
    const { status, error } = await importInto(
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
    const job = await importInto(user, JSON.stringify(conversations));
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
    const job = await importInto(user, archive);
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
    const job = await importInto(new TestUser(host), archive);
    expect(job).toMatchObject({ status: 'failed', error: 'conversations.json is damaged' });
  });
});
