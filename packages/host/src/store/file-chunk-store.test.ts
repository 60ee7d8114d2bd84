import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';

describe.each(engines)('FileChunkStore on %s', (engine) => {
  const test = useStore(engine);
  const read = async (owner: string, fileId: string, n: number) => {
    const data = await test.store.fileChunks.get({ owner, fileId, n });
    return data && [...data];
  };

  it('FileChunkStore.get returns one chunk of one file', async () => {
    const { fileChunks } = test.store;
    const owner = newOwner();
    await fileChunks.put({ owner, fileId: 'a', n: 0 }, new Uint8Array([0]));
    await fileChunks.put({ owner, fileId: 'b', n: 0 }, new Uint8Array([1]));
    await fileChunks.put({ owner, fileId: 'b', n: 1 }, new Uint8Array([2, 255]));
    expect(await read(owner, 'a', 0)).toEqual([0]);
    expect(await read(owner, 'b', 0)).toEqual([1]);
    expect(await read(owner, 'b', 1)).toEqual([2, 255]);
    expect(await read(owner, 'a', 1)).toBeUndefined();
    expect(await read(newOwner(), 'a', 0)).toBeUndefined();
  });

  it('FileChunkStore.deleteAll deletes all chunks of one file', async () => {
    const { fileChunks } = test.store;
    const owner = newOwner();
    const chunks = Array.from({ length: 20 }, (_, n) => n);
    for (const n of chunks) await fileChunks.put({ owner, fileId: 'a', n }, new Uint8Array([n]));
    await fileChunks.put({ owner, fileId: 'b', n: 0 }, new Uint8Array([1]));
    const file = { owner, id: 'a', size: 20, storage: 'database', chunkBytes: 1 } as const;
    const other = newOwner();
    await fileChunks.put({ owner: other, fileId: 'a', n: 19 }, new Uint8Array([7]));
    await fileChunks.deleteAll({ ...file, owner: newOwner(), id: 'b' });
    await fileChunks.deleteAll(file);
    const left = await Promise.all(chunks.map((n) => read(owner, 'a', n)));
    expect(left).toEqual(chunks.map(() => undefined));
    expect(await read(owner, 'b', 0)).toEqual([1]);
    expect(await read(other, 'a', 19)).toEqual([7]);
  });
});
