import { pino } from 'pino';
import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import type { StoredFile } from '../store/file-store.js';
import { TextIndexer } from './text-indexer.js';

describe.each(engines)('TextIndexer on %s', (engine) => {
  const test = useStore(engine, { hasTwins: false });
  const bytes = Buffer.from('Some words');

  async function addFile(owner: string) {
    const { files } = test.store;
    const room = { storage: 'database', chunkBytes: 1000, maxBytes: 1_000_000 } as const;
    const key = await files.begin({ owner, name: 'a.txt', size: bytes.length, ...room });
    if (!key) throw new Error('The owner has too little space left');
    const stored = { size: bytes.length, hash: key.fileId, mediaType: 'text/plain' };
    await files.finish({ ...key, ...stored, textStatus: 'pending' });
    return key;
  }

  it('reads the files of others while the documents of several users are slow, and those in the end', async () => {
    const { files, fileTexts: texts } = test.store;
    const [slow, quick] = [newOwners(3), newOwners(2)];
    const free = Promise.withResolvers<void>();
    async function* readBytes({ owner }: StoredFile) {
      if (slow.includes(owner)) await free.promise;
      yield bytes;
    }
    const keys = [];
    for (const owner of [...slow, ...quick]) keys.push(await addFile(owner));
    const logger = pino({ enabled: false });
    const onRead = () => {};
    const indexer = new TextIndexer({ texts, readBytes, logger, onRead, slowMs: 4000 });
    const readStatuses = () =>
      Promise.all(keys.map(async (key) => (await files.get(key)).text.status));
    const [pending, ready] = [slow.map(() => 'pending'), quick.map(() => 'ready')];
    try {
      await expect.poll(readStatuses).toEqual([...pending, ...ready]);
      // Both readers have slow documents again.
      keys.push(await addFile(newOwner()));
      indexer.wake();
      await expect.poll(readStatuses).toEqual([...pending, ...ready, 'ready']);
      free.resolve();
      await expect.poll(readStatuses).toEqual(keys.map(() => 'ready'));
    } finally {
      await indexer.close();
    }
  });
});

const newOwners = (length: number) => Array.from({ length }, newOwner);
