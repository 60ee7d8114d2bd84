import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import type { FileKey } from './file-store.js';
import type { Store } from './store.js';

const STALE_UPLOAD_MS = 10 * 60 * 1000;
const maxBytes = 20_000;
const lost = { code: 'request_timeout' };

function tryBegin({ files }: Store, owner: string, size = 5_000) {
  const name = 'a.txt';
  return files.begin({ owner, name, size, storage: 'database', chunkBytes: 1_000, maxBytes });
}

async function begin(store: Store, owner: string, size?: number): Promise<FileKey> {
  const key = await tryBegin(store, owner, size);
  if (!key) throw new Error('The owner has too little space left');
  return key;
}

function finish({ files }: Store, key: FileKey, hash: string) {
  return files.finish({ ...key, size: 5_000, hash, mediaType: 'text/plain', textStatus: 'none' });
}

const upload = async (store: Store, owner: string, hash: string) =>
  finish(store, await begin(store, owner), hash);

describe.each(engines)('FileStore on %s', (engine) => {
  let now = 1_700_000_000_000;
  const test = useStore(engine, { clock: () => now });

  it('FileStore.begin reserves no more bytes than the owner may have, without hidden files and dead uploads', async () => {
    const owner = newOwner();
    await begin(test.store, owner, 10_000);
    const second = await begin(test.store, owner, 10_000);
    expect(await tryBegin(test.store, owner)).toBeUndefined();
    expect(await tryBegin(test.store, newOwner())).toBeDefined();
    await test.store.files.hide(second, 'uploading');
    await begin(test.store, owner, 10_000);
    expect(await tryBegin(test.store, owner)).toBeUndefined();
    now += STALE_UPLOAD_MS + 1;
    expect(await tryBegin(test.store, owner, maxBytes)).toBeDefined();
  });

  it('FileStore.resize changes one upload within the limit', async () => {
    const { files } = test.store;
    const owner = newOwner();
    const key = await begin(test.store, owner, 10_000);
    const other = await begin(test.store, owner);
    expect(await files.resize({ ...key, size: 15_001, maxBytes })).toBe(false);
    expect(await files.resize({ ...key, size: 15_000, maxBytes })).toBe(true);
    expect(await files.measure(owner)).toEqual({ total: 0, usedBytes: 20_000 });
    await finish(test.store, other, 'hash');
    await expect(files.resize({ ...other, size: 1, maxBytes })).rejects.toMatchObject(lost);
  });

  it('FileStore.finish makes one upload a file, and returns the known file with the same bytes', async () => {
    const { files } = test.store;
    const owner = newOwner();
    const [first, second, same] = [
      await begin(test.store, owner),
      await begin(test.store, owner),
      await begin(test.store, owner),
    ];
    const file = await finish(test.store, first, 'first');
    expect(file).toMatchObject({ id: first.fileId, hash: 'first', mediaType: 'text/plain' });
    expect(await finish(test.store, second, 'second')).toMatchObject({ id: second.fileId });
    expect(await finish(test.store, same, 'first')).toEqual(file);
    expect(await files.find(first)).toEqual(file);
    expect(await files.find(second)).toMatchObject({ hash: 'second' });
    expect(await files.find(same)).toBeUndefined();
    await files.hide(same, 'uploading');
    await expect(finish(test.store, same, 'third')).rejects.toMatchObject(lost);
  });

  it('FileStore.list pages through the files of one user, the newest first, without uploads', async () => {
    const { files } = test.store;
    const owner = newOwner();
    await begin(test.store, owner);
    expect(await files.hasAny(owner)).toBe(false);
    const [first, second, third] = [
      await upload(test.store, owner, 'first'),
      await upload(test.store, owner, 'second'),
      await upload(test.store, owner, 'third'),
    ];
    expect(await files.list({ owner, limit: 2, offset: 0 })).toEqual([third, second]);
    expect(await files.list({ owner, limit: 2, offset: 2 })).toEqual([first]);
    expect(await files.measure(owner)).toEqual({ total: 3, usedBytes: 20_000 });
    expect(await files.hasAny(owner)).toBe(true);
    expect(await files.hasAny(newOwner())).toBe(false);
  });

  it('FileStore.get treats the file of another user as unknown', async () => {
    const { id: fileId } = await upload(test.store, newOwner(), 'hash');
    const foreign = { owner: newOwner(), fileId };
    await expect(test.store.files.get(foreign)).rejects.toMatchObject({ code: 'file_not_found' });
    expect(await test.store.files.hide(foreign, 'ready')).toBeUndefined();
  });

  it('FileStore.hide hides one file with the given status, and remove forgets no file that is not hidden', async () => {
    const { files } = test.store;
    const owner = newOwner();
    const file = await upload(test.store, owner, 'hash');
    const other = await upload(test.store, owner, 'other');
    const key = { owner, fileId: file.id };
    expect(await files.hide(key, 'uploading')).toBeUndefined();
    const hidden = await files.hide(key, 'ready');
    expect(hidden).toMatchObject({ id: file.id, size: 5_000, storage: 'database' });
    expect(await files.find(key)).toBeUndefined();
    await files.remove(file);
    await files.remove(other);
    expect(await files.list({ owner, limit: 10, offset: 0 })).toEqual([other]);
  });
});

describe.each(engines)('what FileStore stores on %s', (engine) => {
  let now = 1_700_000_000_000;
  const test = useStore(engine, { clock: () => now });

  it('FileStore.finish keeps what is known of the file', async () => {
    const { files } = test.store;
    const owner = newOwner();
    const key = await begin(test.store, owner, 9_000);
    const known = { size: 7_000, hash: 'hash', mediaType: 'image/png' };
    const stored = await files.finish({ ...key, ...known, textStatus: 'pending' });
    expect(stored).toEqual({
      ...known,
      id: key.fileId,
      owner,
      name: 'a.txt',
      storage: 'database',
      chunkBytes: 1_000,
      text: { status: 'pending' },
      createdAt: now,
    });
    expect(await files.get(key)).toEqual(stored);
    expect(await files.measure(owner)).toEqual({ total: 1, usedBytes: 7_000 });
    expect(await files.measure(newOwner())).toEqual({ total: 0, usedBytes: 0 });
  });

  it('FileStore.finish does not end the upload of another user, or one that ended', async () => {
    const owner = newOwner();
    const key = await begin(test.store, owner);
    const foreign = { ...key, owner: newOwner() };
    await expect(finish(test.store, foreign, 'hash')).rejects.toMatchObject(lost);
    await finish(test.store, key, 'hash');
    await expect(finish(test.store, key, 'other')).rejects.toMatchObject(lost);
    expect(await test.store.files.get(key)).toMatchObject({ hash: 'hash' });
  });

  it('users may have files with the same bytes', async () => {
    const [mine, theirs] = [newOwner(), newOwner()];
    const first = await upload(test.store, mine, 'same');
    const second = await upload(test.store, theirs, 'same');
    expect(second.id).not.toBe(first.id);
    expect(second.owner).toBe(theirs);
  });

  it('FileStore.begin charges at least 4096 bytes for a file', async () => {
    const { files } = test.store;
    const owner = newOwner();
    for (let i = 0; i < 4; i += 1) await begin(test.store, owner, 1);
    expect(await files.measure(owner)).toEqual({ total: 0, usedBytes: 4 * 4_096 });
    expect(await tryBegin(test.store, owner, 1)).toBeUndefined();
    const other = newOwner();
    await begin(test.store, other, 4_097);
    expect(await files.measure(other)).toEqual({ total: 0, usedBytes: 4_097 });
    const small = await begin(test.store, other, 10_000);
    expect(await files.resize({ ...small, size: 1, maxBytes: 8_193 })).toBe(true);
    expect(await files.resize({ ...small, size: 1, maxBytes: 8_192 })).toBe(false);
  });

  it('an upload counts until it has shown no progress for ten minutes, a file always', async () => {
    const { files } = test.store;
    const owner = newOwner();
    await upload(test.store, owner, 'hash');
    const slow = await begin(test.store, owner);
    now += STALE_UPLOAD_MS;
    expect(await files.measure(owner)).toEqual({ total: 1, usedBytes: 10_000 });
    expect(await files.resize({ ...slow, size: 6_000, maxBytes })).toBe(true);
    now += STALE_UPLOAD_MS;
    expect(await files.measure(owner)).toEqual({ total: 1, usedBytes: 11_000 });
    now += 1;
    expect(await files.measure(owner)).toEqual({ total: 1, usedBytes: 5_000 });
  });

  it('FileStore.resize does not change the upload of another user', async () => {
    const { files } = test.store;
    const key = await begin(test.store, newOwner());
    const foreign = { ...key, owner: newOwner(), size: 6_000, maxBytes };
    await expect(files.resize(foreign)).rejects.toMatchObject(lost);
    expect(await files.measure(key.owner)).toEqual({ total: 0, usedBytes: 5_000 });
  });

  it('FileStore.hide lets the same bytes be uploaded again, and the text is not read any more', async () => {
    const { files, fileTexts } = test.store;
    const owner = newOwner();
    const key = await begin(test.store, owner);
    const known = { size: 5_000, hash: 'hash', mediaType: 'text/plain' };
    await files.finish({ ...key, ...known, textStatus: 'pending' });
    const bytes = { size: 5_000, storage: 'database', chunkBytes: 1_000 };
    expect(await files.hide(key, 'ready')).toEqual({ owner, id: key.fileId, ...bytes });
    expect(await files.hide(key, 'ready')).toBeUndefined();
    expect(await fileTexts.claimNext(owner)).toBeUndefined();
    expect((await upload(test.store, owner, 'hash')).id).not.toBe(key.fileId);
    expect(await files.hasAny(owner)).toBe(true);
  });
});

describe.each(engines)('FileStore.findLeftovers on %s', (engine) => {
  let now = 1_700_000_000_000;
  const test = useStore(engine, { clock: () => now, hasTwins: false });
  const listLeftovers = async (limit: number) =>
    (await test.store.files.findLeftovers(limit)).map(({ id }) => id).sort();

  it('returns dead uploads and files whose deletion has not ended, until they are removed', async () => {
    const { files } = test.store;
    const owner = newOwner();
    const file = await upload(test.store, owner, 'hash');
    const dead = await begin(test.store, owner);
    const half = await begin(test.store, owner);
    await files.hide(half, 'uploading');
    now += STALE_UPLOAD_MS + 1;
    const live = await begin(test.store, owner);
    await files.hide(await begin(test.store, owner), 'uploading');
    expect(await listLeftovers(10)).toEqual([dead.fileId, half.fileId]);
    expect(await listLeftovers(1)).toHaveLength(1);
    await files.remove({ ...file, id: dead.fileId });
    await files.remove({ ...file, id: half.fileId, owner: newOwner() });
    expect(await listLeftovers(10)).toEqual([half.fileId]);
    expect(await files.get({ owner, fileId: file.id })).toEqual(file);
    expect(await finish(test.store, live, 'live')).toMatchObject({ id: live.fileId });
  });

  it('returns uploads of hosts that are dead at once, but not files that these have stored', async () => {
    const { files } = test.store;
    const owner = newOwner();
    const upload = { owner, name: 'a', size: 10, storage: 'database', chunkBytes: 1_000 } as const;
    const start = async (hostId: string) =>
      (await files.begin({ ...upload, hostId, maxBytes: 1e9 })) ?? { owner, fileId: '' };
    const [dead, other, live] = [await start('dead'), await start('dead'), await start('live')];
    await finish(test.store, other, 'stored');
    const hosts = await files.hosts();
    expect(hosts.filter((id) => id === 'dead' || id === 'live').sort()).toEqual(['dead', 'live']);
    const found = await files.findLeftovers(10, { deadHosts: ['dead'] });
    expect(found.filter((file) => file.owner === owner)).toMatchObject([{ id: dead.fileId }]);
    expect(await finish(test.store, live, 'live')).toMatchObject({ id: live.fileId });
  });

  it('does not return an upload that has shown progress ten minutes ago', async () => {
    const owner = newOwner();
    const slow = await begin(test.store, owner);
    now += STALE_UPLOAD_MS;
    expect(await listLeftovers(10)).not.toContain(slow.fileId);
    now += 1;
    expect(await listLeftovers(10)).toContain(slow.fileId);
    await expect(finish(test.store, slow, 'late')).rejects.toMatchObject(lost);
  });
});

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
