import { statSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { pino } from 'pino';
import { expect, it, onTestFinished, vi } from 'vitest';
import { allMessages } from '../../../test/support/all-messages.js';
import { createTestDatabase } from '../../../test/support/test-database.js';
import { startCleanup } from '../../app/cleanup.js';
import { loadConfig } from '../../config/config.js';
import { openStore, type Store } from '../store.js';

const MB = 1024 * 1024;

async function newStore(prepare: (handle: DatabaseSync) => void = () => {}) {
  const { options, drop } = await createTestDatabase('sqlite');
  const path = join(options.dataDir, 'sibyl.db');
  const handle = new DatabaseSync(path);
  prepare(handle);
  handle.close();
  const store = await openStore(options);
  onTestFinished(async () => {
    await store.close();
    await drop();
  });
  return { store, path };
}

async function writeSessions({ sessions, messages }: Store, owner: string): Promise<string[]> {
  const ids: string[] = [];
  for (let i = 0; i < 40; i++) {
    const { sessionId } = await sessions.create({ owner, oracleDid: 'did:o' });
    const content = 'x'.repeat(100_000);
    const message = { type: 'human', content, requestId: 'r', isComplete: true } as const;
    await messages.append({ ...message, owner, sessionId });
    ids.push(sessionId);
  }
  return ids;
}

function readPragma(path: string, name: string): unknown {
  const handle = new DatabaseSync(path, { readOnly: true });
  try {
    return Object.values(handle.prepare(`pragma ${name}`).get() ?? {})[0];
  } finally {
    handle.close();
  }
}

it('startCleanup shrinks the file after sessions were deleted', async () => {
  const { store, path } = await newStore();
  const owner = 'did:key:zOwner';
  const ids = await writeSessions(store, owner);
  const kept = ids.pop() ?? '';
  await store.reclaim();
  expect(statSync(path).size).toBeGreaterThan(4 * MB);
  for (const sessionId of ids) await store.sessions.delete({ owner, sessionId });
  const stop = startCleanup(
    { store, files: { sweep: async () => {} }, logger: pino({ level: 'silent' }) },
    loadConfig({}),
  );
  onTestFinished(stop);
  await expect.poll(() => statSync(path).size).toBeLessThan(MB);
  expect(readPragma(path, 'freelist_count')).toBe(0);
  expect(await allMessages(store, { owner, sessionId: kept })).toHaveLength(1);
});

it('startCleanup writes nothing after it was stopped', async () => {
  const { store } = await newStore();
  const started = Promise.withResolvers<void>();
  const finished = Promise.withResolvers<void>();
  const sweep = () => {
    started.resolve();
    return finished.promise;
  };
  const reclaim = vi.spyOn(store, 'reclaim');
  const stop = startCleanup(
    { store, files: { sweep }, logger: pino({ level: 'silent' }) },
    loadConfig({}),
  );
  await started.promise;
  let hasStopped = false;
  const stopped = stop().then(() => {
    hasStopped = true;
  });
  await store.ping();
  expect(hasStopped).toBe(false);
  finished.resolve();
  await stopped;
  expect(reclaim).not.toHaveBeenCalled();
});

it('Store.reclaim frees space while others write', async () => {
  const { store, path } = await newStore();
  const owner = 'did:key:zOwner';
  for (const sessionId of await writeSessions(store, owner))
    await store.sessions.delete({ owner, sessionId });
  const writes = Array.from({ length: 200 }, () =>
    store.sessions.create({ owner, oracleDid: 'did:o' }),
  );
  await Promise.all([store.reclaim(), ...writes]);
  expect((await store.sessions.list({ owner, limit: 1, offset: 0 })).total).toBe(200);
  await store.reclaim();
  expect(readPragma(path, 'freelist_count')).toBe(0);
});
