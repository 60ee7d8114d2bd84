import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { ERASE_ABILITY, toOracleResource } from '@sibyl/protocol/decisions';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { backUpStore } from '../src/app/backup-restore.js';
import { loadConfig } from '../src/config/config.js';
import { startHost, type TestHost } from './support/host.js';
import { uploadText } from './support/upload.js';
import { TestUser } from './support/user.js';

let dataDir: string;
let host: TestHost;

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'sibyl-erased-'));
  host = await startHost({ env: { DATA_DIR: dataDir }, hasTwins: false });
});
afterAll(async () => {
  await host?.close();
  await rm(dataDir, { recursive: true, force: true });
});

/** A word for each place where users store texts. */
const createWords = (name: string) => ({
  message: `zebraquux${name}`,
  title: `yakimoto${name}`,
  file: `xylotrope${name}`,
  bytes: `wumpelin${name}`,
  fact: `vexilloid${name}`,
});
type Words = ReturnType<typeof createWords>;

async function store(user: TestUser, words: Words) {
  const { sessionId } = (await user.request('POST', '/sessions')).body;
  await user.request('POST', `/messages/${sessionId}`, { body: { message: words.message } });
  await user.request('PATCH', `/sessions/${sessionId}`, { body: { title: words.title } });
  const page = `${words.file} `.repeat(2_000);
  const { fileId } = await uploadText(user, `${words.bytes}.txt`, `${page}${words.bytes}`);
  const fact = await user.request('POST', '/memory', { body: { text: words.fact } });
  expect(fact.status).toBe(200);
  return { sessionId, fileId, factId: fact.body.id };
}

/** Which of the words the raw bytes of a file contain. */
async function findWords(path: string, words: Words): Promise<string[]> {
  const bytes = await readFile(path).catch(() => Buffer.alloc(0));
  return Object.values(words).filter((word) => bytes.includes(word));
}

/** Which of them are in any file of the host, once its logs were moved into the databases, and in a backup. */
async function scan(words: Words): Promise<string[]> {
  for (const name of ['sibyl.db', 'search.db']) {
    const database = new DatabaseSync(join(dataDir, name), { timeout: 5_000 });
    database.exec('pragma wal_checkpoint(truncate)');
    database.close();
  }
  const backup = join(dataDir, 'backup');
  await backUpStore(backup, loadConfig({ DATA_DIR: dataDir }));
  const files = ['sibyl.db', 'search.db', 'sibyl.db-wal', 'search.db-wal', 'backup/sibyl.db'];
  const found = await Promise.all(files.map((file) => findWords(join(dataDir, file), words)));
  await rm(backup, { recursive: true });
  return [...new Set(found.flat())];
}

const untilIndexed = (user: TestUser, word: string) =>
  expect
    .poll(async () => (await user.request('GET', `/search?q=${word}`)).body.results?.length)
    .toBeGreaterThan(0);

it('DELETE /sessions, /files and /memory leave no word in the bytes of sibyl.db, search.db and backups', async () => {
  const user = new TestUser(host);
  const words = createWords('one');
  const kept = createWords('other');
  const { sessionId, fileId, factId } = await store(user, words);
  await store(user, kept);
  await untilIndexed(user, words.message);
  expect(await scan(words)).toEqual(Object.values(words));
  for (const path of [`/sessions/${sessionId}`, `/files/${fileId}`, `/memory/${factId}`])
    expect((await user.request('DELETE', path)).status).toBeLessThan(300);
  await expect.poll(() => scan(words)).toEqual([]);
  expect(await scan(kept)).toEqual(Object.values(kept));
});

it('DELETE /me leaves no word in the bytes of sibyl.db, search.db and backups', async () => {
  const user = new TestUser(host);
  const words = createWords('two');
  await store(user, words);
  await untilIndexed(user, words.message);
  expect(await scan(words)).toEqual(Object.values(words));
  const capability = { can: ERASE_ABILITY, with: toOracleResource(host.did) };
  const invocation = user.delegate({ capabilities: [capability], ttlSeconds: 300 });
  const { status } = await user.request('DELETE', '/me', { body: { invocation } });
  expect(status).toBe(200);
  expect(await scan(words)).toEqual([]);
});
