import { pino } from 'pino';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import type { FileKey, StoredFile } from '../store/file-store.js';
import { LEASE_MS } from '../store/file-text-store.js';
import { TextIndexer } from './text-indexer.js';

describe.each(engines)('TextIndexer on %s', (engine) => {
  const test = useStore(engine, { hasTwins: false });
  const text = Buffer.from('word'.repeat(1000));

  async function addFile(owner: string): Promise<FileKey> {
    const { files } = test.store;
    const room = { storage: 'database', chunkBytes: 1000, maxBytes: 1_000_000 } as const;
    const key = await files.begin({ owner, name: 'a.txt', size: text.length, ...room });
    if (!key) throw new Error('The owner has too little space left');
    const stored = { size: text.length, hash: key.fileId, mediaType: 'text/plain' };
    await files.finish({ ...key, ...stored, textStatus: 'pending' });
    return key;
  }

  const readTexts = (keys: readonly FileKey[]) =>
    Promise.all(keys.map(async (key) => (await test.store.files.get(key)).text));

  /** Reads bytes as soon as `isReady` resolves. */
  const startIndexer = (isReady = async (_: StoredFile) => {}, maxBytesPerUser = 1_000_000) =>
    new TextIndexer({
      texts: test.store.fileTexts,
      readBytes: async function* (file) {
        await isReady(file);
        yield text;
      },
      maxBytesPerUser,
      disk: undefined,
      logger: pino({ enabled: false }),
      slowMs: 4000,
      onRead: () => {},
    });

  it('reads the files of others while the documents of several users are slow, and those in the end', async () => {
    const [slow, quick] = [[newOwner(), newOwner(), newOwner()], [newOwner()]];
    const free = Promise.withResolvers<void>();
    const keys: FileKey[] = [];
    for (const owner of [...slow, ...quick]) keys.push(await addFile(owner));
    const readStatuses = async () => (await readTexts(keys)).map(({ status }) => status);
    const indexer = startIndexer(async ({ owner }) => {
      if (slow.includes(owner)) await free.promise;
    });
    try {
      const statuses = ['pending', 'pending', 'pending', 'ready'];
      await expect.poll(readStatuses).toEqual(statuses);
      // Both readers have slow documents again.
      keys.push(await addFile(newOwner()));
      indexer.wake();
      await expect.poll(readStatuses).toEqual([...statuses, 'ready']);
      free.resolve();
      await expect.poll(readStatuses).toEqual(keys.map(() => 'ready'));
    } finally {
      await indexer.close();
    }
  });

  it('reads the other files of a user while the storage does not return one, which waits', async () => {
    const owner = newOwner();
    const keys = [await addFile(owner), await addFile(owner)];
    let attempts = 0;
    const indexer = startIndexer(async ({ id }) => {
      if (id !== keys[0]?.fileId) return;
      attempts += 1;
      throw new Error('The storage is away');
    });
    try {
      const readStatuses = async () => (await readTexts(keys)).map(({ status }) => status);
      await expect.poll(readStatuses).toEqual(['pending', 'ready']);
      expect(attempts).toBe(1);
    } finally {
      await indexer.close();
    }
  });

  it('extends its claim of a file while it reads it', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
    onTestFinished(() => void vi.useRealTimers());
    const key = await addFile(newOwner());
    const [reading, free] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const extend = vi.spyOn(test.store.fileTexts, 'extend');
    onTestFinished(() => extend.mockRestore());
    const indexer = startIndexer(async () => {
      reading.resolve();
      await free.promise;
    });
    try {
      await reading.promise;
      vi.advanceTimersByTime(LEASE_MS / 2);
      expect(extend.mock.calls.length).toBeGreaterThan(0);
      expect(await extend.mock.results[0]?.value).toBe(true);
      free.resolve();
      const isRead = async () => (await readTexts([key]))[0]?.status === 'ready';
      // Not `expect.poll`, which moves fake timers.
      await vi.waitUntil(isRead, { timeout: 30_000 });
    } finally {
      await indexer.close();
    }
    const count = extend.mock.calls.length;
    vi.advanceTimersByTime(LEASE_MS);
    expect(extend).toHaveBeenCalledTimes(count);
  });

  it('stores no more text of all files of a user than the limit, until some are deleted', async () => {
    const owner = newOwner();
    const keys: FileKey[] = [];
    for (let i = 0; i < 3; i++) keys.push(await addFile(owner));
    const indexer = startIndexer(undefined, text.length * 1.5);
    try {
      const failed = { status: 'failed', error: expect.stringContaining('no room for its text') };
      await expect
        .poll(() => readTexts(keys))
        .toMatchObject([
          { status: 'ready', isComplete: true },
          { status: 'ready', isComplete: false },
          failed,
        ]);
      await test.store.fileTexts.deleteAll(keys[0] as FileKey);
      const last = await addFile(owner);
      indexer.wake();
      const read = async () => (await readTexts([last]))[0];
      await expect.poll(read).toMatchObject({ status: 'ready', isComplete: true });
    } finally {
      await indexer.close();
    }
  });
});
