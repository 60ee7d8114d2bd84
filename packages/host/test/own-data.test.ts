import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { readdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { type FileInfo, MessageList } from '@sibyl/protocol';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { MANIFEST } from '../src/own-data/archive-format.js';
import { ArchiveReader, readLines } from '../src/own-data/archive-reader.js';
import { openDatabase } from '../src/store/open-database.js';
import { readCatalog } from '../src/store/own-data/table-catalog.js';
import { createArchive, importArchive, sendArchive, zip } from './support/archives.js';
import { fillTables } from './support/database-scan.js';
import { startHost, type TestHost } from './support/host.js';
import { createTestDatabase, engines, type TestDatabase } from './support/test-database.js';
import { upload } from './support/upload.js';
import { TestUser } from './support/user.js';

const folder = mkdtempSync(join(tmpdir(), 'sibyl-archives-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function downloadExport(user: TestUser): Promise<Buffer> {
  const response = await fetch(`${user.host.url}/me/export`, { headers: user.headers });
  expect(response.status).toBe(200);
  return Buffer.from(await response.arrayBuffer());
}

/** The files of an archive by their paths. */
async function unzip(archive: Buffer): Promise<Map<string, Buffer>> {
  const path = join(folder, crypto.randomUUID());
  await writeFile(path, archive);
  const signal = new AbortController().signal;
  const reader = await ArchiveReader.open(path, { maxBytes: 1e9, signal });
  const files = new Map<string, Buffer>();
  for (const name of reader.paths) files.set(name, await buffer(reader.chunks(name)));
  reader.close();
  return files;
}

/** An archive of these rows by table. */
const archiveRows = (tables: Readonly<Record<string, readonly object[]>>): Promise<Buffer> =>
  createArchive(
    Object.fromEntries(
      Object.entries(tables).map(([table, rows]) => [
        table,
        rows.map((row) => JSON.stringify(row)),
      ]),
    ),
  );

async function talk(user: TestUser, messages: readonly string[]): Promise<string> {
  const { body } = await user.request('POST', '/sessions', { body: { title: 'About boats' } });
  for (const message of messages)
    expect(
      (await user.request('POST', `/messages/${body.sessionId}`, { body: { message } })).status,
    ).toBe(200);
  return body.sessionId;
}

interface Spent {
  readonly model?: string;
  readonly usage?: object;
}

const INVALID_ERROR = JSON.stringify({ status: 'odd', code: 'odd', message: 'Odd' });

/** What a user sees. */
async function readContent(user: TestUser) {
  const { body } = await user.request('GET', '/sessions?limit=100');
  const sessions = [];
  for (const { sessionId, title, createdAt, lastUpdatedAt } of body.sessions) {
    const { body: list } = await user.request('GET', `/messages/${sessionId}`);
    // What a turn used belongs to the oracle that ran it.
    const messages = list.messages.map(({ model: _, usage: __, ...rest }: object & Spent) => rest);
    sessions.push({ sessionId, title, createdAt, lastUpdatedAt, messages });
  }
  const preferences = (await user.request('GET', '/user-preferences')).body;
  const { facts } = (await user.request('GET', '/memory')).body;
  return { sessions, preferences, facts };
}

const session = (id: string, more: object = {}) => ({
  id,
  title: 'Forged',
  created_at: 1_700_000_000_000,
  last_updated_at: 1_700_000_000_000,
  room_id: 'room',
  last_seq: 0,
  last_turn: 0,
  ...more,
});
const message = (id: string, sessionId: string, more: object = {}) => ({
  id,
  session_id: sessionId,
  turn: 1,
  seq: 1,
  parent: null,
  type: 'human',
  content: id,
  parts: null,
  metadata: null,
  error: null,
  request_id: 'r',
  run_id: null,
  is_complete: 1,
  created_at: 1_700_000_000_000,
  ...more,
});

describe.each(engines)('own data on %s', (engine) => {
  let test: TestDatabase;
  let host: TestHost;

  beforeAll(async () => {
    test = await createTestDatabase(engine);
    host = await startHost({ env: { ...test.env, SESSIONS_PER_USER: '50', IMPORT_LIMIT: '5mb' } });
  });

  afterAll(async () => {
    await host?.close();
    await test?.drop();
  });

  it('GET /me/export contains every row of the caller, of no other user, and a signed manifest', async () => {
    const [user, other] = [new TestUser(host), new TestUser(host)];
    await talk(other, ['a secret of another user']);
    await talk(user, ['my name is Ada', 'remember that I like boats']);
    await user.request('POST', '/delegation', { body: { raw: user.delegate() } });
    const database = await openDatabase(test.options);
    const filled = await fillTables(database, user.did);
    const derived = (await readCatalog(database)).filter(({ rules }) => rules.isDerived);
    await database.close();
    const files = await unzip(await downloadExport(user));
    const manifest = JSON.parse(String(files.get(MANIFEST)));
    expect(manifest).toMatchObject({ owner: user.did, oracle: { did: host.did } });
    for (const { path, bytes, sha256 } of manifest.files) {
      const data = files.get(path) ?? Buffer.alloc(0);
      expect([path, data.length]).toEqual([path, bytes]);
      expect(createHash('sha256').update(data).digest('hex')).toBe(sha256);
    }
    const tables = [...files.keys()].flatMap((path) => /^tables\/(\w+)\//.exec(path)?.[1] ?? []);
    const missing = filled.filter((name) => !tables.includes(name));
    expect(missing.filter((name) => !derived.some((table) => table.name === name))).toEqual([]);
    const all = [...files.values()].map(String).join('');
    expect(all).toContain('my name is Ada');
    expect(all).not.toContain('a secret of another user');
    expect(all).not.toContain(other.did);
    // No credentials.
    expect(String(files.get('tables/delegations/000001.jsonl'))).not.toContain('ciphertext');
    const [path, data] = [...files].find(([name]) => name.startsWith('files/blobs/')) ?? ['', ''];
    expect(String(data)).toMatch(/^[0-9a-f-]{36}$/);
    expect(String(files.get('tables/blobs/000001.jsonl'))).toContain(path);
  });

  it('HEAD /me/export, and clients that disconnect early, take no place of others', async () => {
    const user = new TestUser(host);
    const url = `${host.url}/me/export`;
    for (let i = 0; i < 5; i++) {
      const { status } = await fetch(url, { method: 'HEAD', headers: user.headers });
      expect(status).toBe(200);
      const left = new AbortController();
      const request = fetch(url, { headers: new TestUser(host).headers, signal: left.signal });
      setImmediate(() => left.abort());
      await request.catch(() => undefined);
    }
    // The host notices a little later that a client has left.
    await vi.waitFor(() => downloadExport(user), { timeout: 10_000 });
  });

  it('POST /me/import restores an export at another oracle, once', async () => {
    const user = new TestUser(host);
    await talk(user, ['my name is Ada', 'what time is it?']);
    await talk(user, ['call yourself Grace', 'remember that I like boats']);
    const uploaded = await fetch(`${host.url}/files?name=boats.txt`, {
      method: 'POST',
      headers: { ...user.headers, 'content-type': 'application/octet-stream' },
      body: 'a list of boats',
    });
    expect(uploaded.status).toBe(200);
    const [rated] = (await readContent(user)).sessions;
    const feedback = { rating: 'down', comment: 'Too short' };
    const path = `/messages/${rated?.sessionId}/${rated?.messages[1].id}/feedback`;
    expect((await user.request('PUT', path, { body: feedback })).status).toBe(200);
    const content = await readContent(user);
    expect(content.preferences).not.toEqual({});
    expect(content.sessions[0]?.messages[1].feedback).toEqual(feedback);
    const archive = await downloadExport(user);
    const elsewhere = await startHost();
    try {
      const there = user.at(elsewhere);
      const job = await importArchive(there, archive);
      expect(job).toMatchObject({ status: 'finished', format: 'sibyl', refused: 0 });
      expect(job.stored).toMatchObject({ files: 1, sessions: 2, messages: 8, feedback: 1 });
      expect(job.bytes).toBe(job.totalBytes);
      expect(await readContent(there)).toEqual(content);
      const { files } = (await there.request('GET', '/files')).body;
      expect(files).toMatchObject([{ name: 'boats.txt', size: 15 }]);
      const file = await fetch(`${elsewhere.url}/files/${files[0].fileId}`, {
        headers: there.headers,
      });
      expect(await file.text()).toBe('a list of boats');
      const again = await importArchive(there, archive);
      expect(again.stored).toMatchObject({ files: 0, sessions: 0, messages: 0, memory_facts: 0 });
      expect(again.bytes).toBe(again.totalBytes);
      expect((await there.request('GET', '/files')).body.files).toHaveLength(1);
      expect(again.present).toBeGreaterThanOrEqual(10);
      // An imported session continues.
      const [first] = content.sessions;
      const sent = { body: { message: 'and now?' } };
      const { status } = await there.request('POST', `/messages/${first?.sessionId}`, sent);
      expect(status).toBe(200);
      const { messages } = (await there.request('GET', `/messages/${first?.sessionId}`)).body;
      expect(messages).toHaveLength((first?.messages.length ?? 0) + 2);
      expect((await importArchive(there, archive)).stored.messages).toBe(0);
    } finally {
      await elsewhere.close();
    }
  });

  it('POST /me/import keeps the names, times and order of files', async () => {
    const user = new TestUser(host);
    const names = ['10:30 notes.txt', 'b.txt', 'c: d?.txt'];
    for (const name of names) await upload(user, name, `the content of ${name}`);
    const { files: own } = (await user.request('GET', '/files')).body;
    const archive = await downloadExport(user);
    const there = new TestUser(host);
    expect(await importArchive(there, archive)).toMatchObject({ refused: 0 });
    const { files } = (await there.request('GET', '/files')).body;
    expect(files.map((file: FileInfo) => file.name)).toEqual(names.toReversed());
    const readTimes = (list: FileInfo[]) => list.map(({ createdAt }) => createdAt);
    expect(readTimes(files)).toEqual(readTimes(own));
  });

  it('POST /me/import stores a file at the time of the import if its own cannot be', async () => {
    const before = Date.now();
    const there = new TestUser(host);
    const id = crypto.randomUUID();
    const archive = await createArchive(
      { files: [JSON.stringify({ id, name: 'a.txt', created_at: 8e18 })] },
      {},
      new Map([[`uploads/${id}/a.txt`, Buffer.from('a')]]),
    );
    expect(await importArchive(there, archive)).toMatchObject({ stored: { files: 1 } });
    const { files } = (await there.request('GET', '/files')).body;
    expect(Date.parse(files[0].createdAt)).toBeGreaterThanOrEqual(before);
  });

  it('POST /me/import names files and sessions by their new ids, in texts and facts too', async () => {
    const user = new TestUser(host);
    const sessionId = await talk(user, ['mine']);
    const file = crypto.randomUUID();
    const text = `See [a](/files/${file})`;
    const fact = { id: 'f1', text: 'Likes boats', created_at: 1_700_000_000_000 };
    const archive = await createArchive(
      {
        files: [JSON.stringify({ id: file, name: 'a.txt' })],
        sessions: [JSON.stringify(session(sessionId))],
        messages: [
          JSON.stringify(message('m1', sessionId)),
          JSON.stringify(
            message('m2', sessionId, {
              type: 'ai',
              seq: 2,
              parent: 'm1',
              content: text,
              parts: JSON.stringify([{ type: 'text', text }]),
            }),
          ),
        ],
        memory_facts: [JSON.stringify({ ...fact, session_id: sessionId })],
      },
      {},
      new Map([[`uploads/${file}/a.txt`, Buffer.from('a file')]]),
    );
    expect(await importArchive(user, archive)).toMatchObject({ status: 'finished', refused: 0 });
    const { files } = (await user.request('GET', '/files')).body;
    const { sessions, facts } = await readContent(user);
    const added = sessions.find((each) => each.sessionId !== sessionId);
    const expected = `See [a](/files/${files[0].fileId})`;
    expect(added?.messages[1]).toMatchObject({
      content: expected,
      parts: [{ type: 'text', text: expected }],
    });
    expect(facts).toMatchObject([{ text: 'Likes boats', sessionId: added?.sessionId }]);
  });

  it('POST /me/import never changes what exists: a session with the same id gets another', async () => {
    const user = new TestUser(host);
    const sessionId = await talk(user, ['mine']);
    const before = await readContent(user);
    const archive = await archiveRows({
      sessions: [session(sessionId)],
      messages: [
        message('m1', sessionId),
        message('m2', sessionId, { type: 'ai', seq: 2, parent: 'm1', content: 'imported' }),
      ],
    });
    expect((await importArchive(user, archive)).stored).toMatchObject({ sessions: 1, messages: 2 });
    expect((await importArchive(user, archive)).stored).toMatchObject({ sessions: 0, messages: 0 });
    const after = await readContent(user);
    expect(after.sessions).toContainEqual(before.sessions[0]);
    const added = after.sessions.find((each) => each.sessionId !== sessionId);
    expect(added?.messages.map((each: { content: string }) => each.content)).toEqual([
      'm1',
      'imported',
    ]);
  });

  it('POST /me/import stores a session apart that was continued differently here', async () => {
    const user = new TestUser(host);
    const sessionId = await talk(user, ['mine']);
    const before = await readContent(user);
    const created_at = Date.parse(before.sessions[0]?.createdAt);
    const archive = await archiveRows({
      sessions: [session(sessionId, { created_at })],
      messages: [message('m1', sessionId), message('m2', sessionId, { turn: 2, seq: 9 })],
    });
    expect((await importArchive(user, archive)).stored).toMatchObject({ sessions: 1, messages: 2 });
    expect((await importArchive(user, archive)).stored).toMatchObject({ sessions: 0, messages: 0 });
    const { sessions } = await readContent(user);
    expect(sessions).toHaveLength(2);
    expect(sessions).toContainEqual(before.sessions[0]);
  });

  it('POST /me/import rejects what was changed, is damaged or too large, and stores nothing of it', async () => {
    const user = new TestUser(host);
    await talk(user, ['my name is Ada']);
    const files = await unzip(await downloadExport(user));
    const there = new TestUser(host);
    const change = async (path: string, data: string) => {
      const archive = await zip(new Map([...files, [path, Buffer.from(data)]]));
      const { status, error } = await importArchive(there, archive);
      expect(status).toBe('failed');
      return error;
    };
    expect(await change('tables/messages/000001.jsonl', '{}')).toContain('was changed');
    const manifest = String(files.get(MANIFEST)).replace('2', '3');
    expect(await change(MANIFEST, manifest)).toContain('signature');
    const whole = await zip(files);
    expect((await importArchive(there, whole.subarray(0, -30))).error).toContain('complete zip');
    expect((await importArchive(there, 'PK but no archive')).error).toContain('complete zip');
    const name = Buffer.from('aa/bb/etc/passwd.txt');
    const harmless = await zip(new Map([[String(name), 'x']]));
    const hostile = Buffer.from(harmless.toString('latin1').replaceAll('aa/bb', '../..'), 'latin1');
    expect((await importArchive(there, hostile)).error).toContain('list of files');
    // Zeros compress to nothing.
    const bomb = await zip(new Map([['conversations.json', Buffer.alloc(30_000_000, 0x20)]]));
    expect(bomb.length).toBeLessThan(100_000);
    expect((await importArchive(there, bomb)).error).toContain('IMPORT_LIMIT');
    const large = await sendArchive(there, Buffer.alloc(6_000_000));
    expect(large).toMatchObject({ status: 413, body: { code: 'body_too_large' } });
    expect((await sendArchive(there, '')).status).toBe(400);
    expect((await readContent(there)).sessions).toEqual([]);
    expect(await readdir(join(host.dataDir, 'imports'))).toEqual([]);
  });

  it('POST /me/import takes only rows that fit, and only of tables that a user may write', async () => {
    const user = new TestUser(host);
    const sessions = ['good', 'bad id!', '.', '..'].map((id) => session(id));
    const archive = await archiveRows({
      sessions: [...sessions, session('late', { created_at: -1 })],
      messages: [
        message('m1', 'good', { parts: '{"not": "parts"}', is_complete: 1 }),
        message('m2', 'unknown-session'),
        message('m3', 'good', { turn: 'one' }),
        message('m4', 'good', { type: 'system' }),
        message('m5', 'good', { seq: 9, turn: 9, owner: 'did:key:zVictim', error: INVALID_ERROR }),
      ],
      callers: [{ did: user.did, cid: 'x', created_at: 1 }],
      delegations: [{ cid: 'x', audience: host.did, created_at: 1 }],
      runs: [{ id: 'run', session_id: 'good', status: 'running' }],
      credits_accounts: [{ balance: 1_000_000 }],
    });
    const job = await importArchive(user, archive);
    expect(job).toMatchObject({ status: 'finished', refused: 7 });
    expect(job.stored).toMatchObject({ sessions: 1, messages: 2 });
    expect(Object.keys(job.stored)).not.toContain('callers');
    const { body } = await user.request('GET', '/messages/good');
    expect(MessageList.parse(body).messages).toMatchObject([{ content: 'm1' }, { content: 'm5' }]);
    expect((await user.request('GET', '/delegation/list')).body.delegations ?? []).toEqual([]);
    const sent = { body: { message: 'continues after the last turn' } };
    expect((await user.request('POST', '/messages/good', sent)).status).toBe(200);
  });

  it('POST /me/import refuses branches that lead back to themselves, and numbers that cannot be', async () => {
    const user = new TestUser(host);
    const branch = (number: unknown, base: unknown, sessionId = 'loop') => ({
      ...{ session_id: sessionId, branch: number, base_branch: base, base_turn: 1, base_seq: 1 },
      ...{ parent_id: 'm1', original_id: null, first_id: 'm2' },
    });
    const archive = await archiveRows({
      sessions: [
        session('loop', { active_branch: 2, last_branch: 0 }),
        session('lost', { active_branch: 7, last_branch: null, unlisted: 5e12 }),
        session('huge', { last_turn: Number.MAX_SAFE_INTEGER }),
      ],
      messages: [
        message('m1', 'loop'),
        message('m2', 'loop', { branch: 1, turn: 2, seq: 2, parent: 'm1' }),
        message('m3', 'lost'),
        ...[null, 0.5, -1, 1e300].map((number, i) => message(`b${i}`, 'lost', { branch: number })),
      ],
      branches: [branch(1, 0), branch(2, 2), branch(3, 4), branch(4, 3), branch(1.5, 0)],
    });
    const job = await importArchive(user, archive);
    expect(job).toMatchObject({ status: 'finished', refused: 1 + 4 + 3 });
    expect(job.stored).toMatchObject({ sessions: 2, messages: 3, branches: 2 });
    for (const [id, shown] of [
      ['loop', 'm1'],
      ['lost', 'm3'],
    ]) {
      const { body } = await user.request('GET', `/messages/${id}`);
      expect(MessageList.parse(body).messages).toMatchObject([{ content: shown }]);
      const edit = { body: { message: 'another way', parentId: null } };
      expect((await user.request('POST', `/messages/${id}`, edit)).status).toBe(200);
    }
  });

  it('POST /me/import stops at SESSIONS_PER_USER', async () => {
    const user = new TestUser(host);
    const sessions = Array.from({ length: 60 }, (_, i) => session(`s${i}`));
    const job = await importArchive(user, await archiveRows({ sessions }));
    expect(job).toMatchObject({ status: 'finished', refused: 10, stored: { sessions: 50 } });
  });

  it('POST /me/import reads conversations of ChatGPT, in an archive or alone, once', async () => {
    const user = new TestUser(host);
    const node = (id: string, parent: string | null, role: string, text: string, more = {}) => ({
      [id]: {
        id,
        parent,
        children: [],
        message: {
          id,
          author: { role },
          create_time: 1_700_000_001,
          content: { content_type: 'text', parts: [text] },
          ...more,
        },
      },
    });
    const conversation = {
      title: 'Trip "to" Rome \\ [1]',
      create_time: 1_700_000_000.5,
      update_time: 1_700_000_100,
      conversation_id: 'c1',
      current_node: 'a2',
      mapping: {
        root: { id: 'root', parent: null, children: ['s'], message: null },
        ...node('s', 'root', 'system', 'You are ChatGPT'),
        ...node('q', 's', 'user', 'Where is Rome? {"a": [1]}'),
        ...node('t', 'q', 'assistant', 'search("Rome")', { recipient: 'browser' }),
        ...node('a1', 't', 'assistant', 'In Italy.'),
        ...node('a2', 'a1', 'assistant', 'Do you want a map?'),
        ...node('other', 'q', 'assistant', 'an answer of another branch'),
      },
    };
    const loop = {
      ...conversation,
      title: 'Loop',
      conversation_id: 'c2',
      current_node: 'q',
      mapping: node('q', 'q', 'user', 'a loop'),
    };
    const text = JSON.stringify([conversation, loop, { not: 'a conversation' }]);
    const job = await importArchive(user, text, 'application/json');
    expect(job).toMatchObject({ status: 'finished', format: 'chatgpt', refused: 1 });
    expect(job.stored).toMatchObject({ sessions: 2, messages: 3 });
    const archive = await zip(new Map([['conversations.json', text]]));
    expect((await importArchive(user, archive)).stored).toMatchObject({ sessions: 0, messages: 0 });
    const { sessions } = await readContent(user);
    const rome = sessions.find(({ title }) => title.startsWith('Trip'));
    expect(rome).toMatchObject({
      title: 'Trip "to" Rome \\ [1]',
      createdAt: '2023-11-14T22:13:20.500Z',
      messages: [
        { type: 'human', content: 'Where is Rome? {"a": [1]}' },
        { type: 'ai', content: 'In Italy.\n\nDo you want a map?' },
      ],
    });
    const broken = await importArchive(user, text.slice(0, -20), 'application/json');
    expect(broken).toMatchObject({ status: 'failed' });
    const none = await importArchive(user, '[]', 'application/json');
    expect(none.error).toContain('no conversations');
  });

  it('POST /me/import refuses a message that is too long', async () => {
    const user = new TestUser(host);
    const id = crypto.randomUUID();
    const created_at = 1_700_000_000_000;
    const session = {
      ...{ id, title: 'Large', created_at, last_updated_at: created_at },
      ...{ room_id: '', last_seq: 0, last_turn: 0 },
    };
    const message = (seq: number, length: number) => ({
      ...{ id: crypto.randomUUID(), session_id: id, turn: seq, seq, type: 'human', created_at },
      ...{ content: 'x'.repeat(length), request_id: 'r', is_complete: 1, parent: null },
    });
    const messages = [message(1, 10), message(2, 4 * 1024 ** 2 + 1)];
    const job = await importArchive(user, await archiveRows({ sessions: [session], messages }));
    expect(job).toMatchObject({ status: 'finished', refused: 1, stored: { messages: 1 } });
  });

  it('POST /me/import says which rows it skips because a plugin is off', async () => {
    const forgetful = await startHost({ features: { memory: false } });
    try {
      const fact = { id: 'f1', text: 'Likes boats', created_at: 1_700_000_000_000 };
      const archive = await archiveRows({ memory_facts: [fact], sessions: [session('s1')] });
      const job = await importArchive(new TestUser(forgetful), archive);
      expect(job).toMatchObject({ status: 'finished', refused: 1, skipped: { memory_facts: 1 } });
      expect(job.stored).toMatchObject({ sessions: 1 });
      expect(job.bytes).toBe(job.totalBytes);
    } finally {
      await forgetful.close();
    }
  });

  it('GET /me/import/:id is unknown for others', async () => {
    const user = new TestUser(host);
    const job = await importArchive(user, await archiveRows({ sessions: [session('s1')] }));
    const { status, body } = await new TestUser(host).request('GET', `/me/import/${job.id}`);
    expect({ status, code: body.code }).toEqual({ status: 404, code: 'import_not_found' });
  });
});

it('readLines splits anywhere', async () => {
  const text = Buffer.from('{"a":"é"}\n\n{"b":2}\n{"c":3}');
  for (const size of [1, 2, 5, 100]) {
    const chunks = async function* () {
      for (let at = 0; at < text.length; at += size) yield text.subarray(at, at + size);
    };
    const lines: string[] = [];
    for await (const line of readLines(chunks())) lines.push(line);
    expect(lines).toEqual(['{"a":"é"}', '{"b":2}', '{"c":3}']);
  }
});
