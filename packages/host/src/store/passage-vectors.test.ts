import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { toVector } from '@sibyl/plugin-kit/search';
import pg from 'pg';
import { pino } from 'pino';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { copyFile } from '../../test/support/stored-rows.js';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import { PassageEmbedder } from '../files/passage-embedder.js';
import type { FileKey } from './file-store.js';
import type { Passage } from './file-text-store.js';
import type { Store } from './store.js';

const LEASE_MS = 5 * 60 * 1000;
const model = 'model';
const near = toVector([1, 0]);
const far = toVector([0, 1]);
const silent = pino({ level: 'silent' });
const outcome = { unit: 'page', count: 1, isComplete: true } as const;

const createPassage = (n: number): Passage => ({
  n,
  place: n + 1,
  position: `page ${n + 1}`,
  text: `passage ${n}`,
});

/** Stores a file whose text is to be read. */
async function addUnread({ files }: Store, owner: string, name = 'a.txt'): Promise<FileKey> {
  const room = { storage: 'database', chunkBytes: 1_000, maxBytes: 1_000_000 } as const;
  const key = await files.begin({ owner, name, size: 10, ...room });
  if (!key) throw new Error('The owner has too little space left');
  const upload = { ...key, size: 10, hash: key.fileId, mediaType: 'text/plain' };
  await files.finish({ ...upload, textStatus: 'pending' });
  return key;
}

/** Stores a file with text, but without vectors. */
async function addFile(store: Store, owner: string, name?: string, count = 3): Promise<FileKey> {
  const key = await addUnread(store, owner, name);
  const passages = Array.from({ length: count }, (_, n) => createPassage(n));
  await store.fileTexts.add(key, passages);
  await store.fileTexts.finish(key, outcome);
  return key;
}

describe.each(engines)('PassageVectorStore on %s', (engine) => {
  const test = useStore(engine);

  async function addVectors(key: FileKey, vectors = [near], of = model): Promise<void> {
    const { passageVectors } = test.store;
    await passageVectors.put(
      key,
      of,
      vectors.map((vector, n) => ({ n, vector })),
    );
    await passageVectors.finish(key, of);
  }

  it('PassageVectorStore.listMissing returns passages of one file after a number, up to the limit', async () => {
    const { passageVectors } = test.store;
    const owner = newOwner();
    const key = await addFile(test.store, owner);
    await addFile(test.store, owner);
    const listed = async (after: number, limit: number, from = key) =>
      (await passageVectors.listMissing(from, { model, after, limit })).map(({ n }) => n);
    expect(await listed(-1, 10)).toEqual([0, 1, 2]);
    expect(await listed(0, 10)).toEqual([1, 2]);
    expect(await listed(0, 1)).toEqual([1]);
    expect(await listed(-1, 10, { ...key, owner: newOwner() })).toEqual([]);
  });

  it('PassageVectorStore.listMissing leaves out passages that have a vector of the model', async () => {
    const { passageVectors } = test.store;
    const key = await addFile(test.store, newOwner());
    await passageVectors.put(key, model, [{ n: 0, vector: near }]);
    await passageVectors.put(key, 'old model', [{ n: 1, vector: near }]);
    const missing = await passageVectors.listMissing(key, { model, after: -1, limit: 10 });
    expect(missing.map(({ n }) => n)).toEqual([1, 2]);
    // A passage that the new model refuses has only the vector of the old one.
    await passageVectors.finish(key, model);
    const { owner } = key;
    const found = await passageVectors.search({ owner, model, vector: near, limit: 10 });
    expect(found.map(({ n }) => n)).toEqual([0]);
  });

  it('PassageVectorStore.search returns the closest passages of one user, and of one file if it is given', async () => {
    const { files, passageVectors } = test.store;
    const owner = newOwner();
    const [first, second, deleted, unfinished, old] = [
      await addFile(test.store, owner, 'first.txt'),
      await addFile(test.store, owner, 'second.txt'),
      await addFile(test.store, owner),
      await addFile(test.store, owner),
      await addFile(test.store, owner),
    ];
    await addVectors(first, [far, near]);
    await addVectors(second, [toVector([3, 1]), far]);
    await addVectors(deleted);
    await files.hide(deleted, 'ready');
    await passageVectors.put(unfinished, model, [{ n: 0, vector: near }]);
    await addVectors(old, [near], 'old model');
    const search = { owner, model, vector: near, limit: 2 };
    expect(await passageVectors.search(search)).toEqual([
      { ...createPassage(1), fileId: first.fileId, file: 'first.txt' },
      { ...createPassage(0), fileId: second.fileId, file: 'second.txt' },
    ]);
    const inSecond = await passageVectors.search({ ...search, fileId: second.fileId, limit: 10 });
    expect(inSecond.map(({ fileId, n }) => [fileId, n])).toEqual([
      [second.fileId, 0],
      [second.fileId, 1],
    ]);
    expect(await passageVectors.search({ ...search, owner: newOwner() })).toEqual([]);
  });

  it('PassageVectorStore.search returns the passages of one user, also if another has a file with the same id', async () => {
    const { fileTexts, passageVectors } = test.store;
    const first = await addUnread(test.store, newOwner());
    const keys = [first, await copyFile(test.store, first)];
    for (const key of keys) {
      await fileTexts.add(key, [{ ...createPassage(0), text: `of ${key.owner}` }]);
      await fileTexts.finish(key, outcome);
      await addVectors(key);
    }
    for (const { owner } of keys)
      expect(await passageVectors.search({ owner, model, vector: near, limit: 10 })).toMatchObject([
        { fileId: first.fileId, text: `of ${owner}` },
      ]);
  });

  it('PassageVectorStore.search compares all of more than 500 vectors', async () => {
    const owner = newOwner();
    const key = await addFile(test.store, owner, 'long.txt', 600);
    await addVectors(key, [near, ...Array.from({ length: 599 }, () => far)]);
    const found = await test.store.passageVectors.search({ owner, model, vector: near, limit: 1 });
    expect(found).toMatchObject([{ n: 0 }]);
  });

  it('PassageVectorStore.put stores nothing for a file that is deleted', async () => {
    const { files, passageVectors } = test.store;
    const owner = newOwner();
    await addFile(test.store, owner);
    const deleted = await addFile(test.store, owner);
    await files.hide(deleted, 'ready');
    await passageVectors.put(deleted, model, [{ n: 0, vector: near }]);
    await passageVectors.put({ owner, fileId: 'unknown' }, model, [{ n: 0, vector: near }]);
    expect(await count(`select n from file_vectors where owner = '${owner}'`)).toBe(0);
  });

  it('PassageVectorStore.release keeps the claim of a file whose text is being read', async () => {
    const { fileTexts, passageVectors } = test.store;
    const key = await addUnread(test.store, newOwner());
    await fileTexts.claimNext(key.owner);
    await passageVectors.release(key);
    expect(await fileTexts.claimNext(key.owner)).toBeUndefined();
  });

  async function count(query: string): Promise<number> {
    const { databaseUrl, dataDir } = test.options;
    if (databaseUrl === undefined) {
      const handle = new DatabaseSync(join(dataDir, 'sibyl.db'), { readOnly: true });
      const { length } = handle.prepare(query).all();
      handle.close();
      return length;
    }
    const client = new pg.Client({ connectionString: databaseUrl });
    await client.connect();
    const { rows } = await client.query(query);
    await client.end();
    return rows.length;
  }
});

describe.each(engines)('PassageVectorStore.claimNext on %s', (engine) => {
  let now = 1_700_000_000_000;
  const test = useStore(engine, { clock: () => now, hasTwins: false });

  it('takes each file without vectors once, and again when its host has died or its vectors are of another model', async () => {
    const { fileTexts, passageVectors } = test.store;
    const [reading, embedded, alice, bob] = [newOwner(), newOwner(), newOwner(), newOwner()];
    await addUnread(test.store, reading);
    const known = await addFile(test.store, embedded);
    expect(await passageVectors.claimNext()).toEqual(known);
    expect(await passageVectors.claimNext()).toBeUndefined();
    now += LEASE_MS + 1;
    expect(await passageVectors.claimNext()).toEqual(known);
    await passageVectors.finish(known, model);
    const waiting: string[] = [];
    for (const owner of [alice, bob, alice, bob, alice, bob, alice, bob]) {
      waiting.push((await addFile(test.store, owner)).fileId);
      await addUnread(test.store, owner);
    }
    const claimed: FileKey[] = [];
    for (const _ of waiting) {
      const key = await passageVectors.claimNext();
      if (!key) break;
      claimed.push(key);
      await passageVectors.put(key, model, [{ n: 0, vector: near }]);
      await passageVectors.listMissing(key, { model, after: 0, limit: 1 });
      if (claimed.length % 2 === 0) await passageVectors.finish(key, model);
    }
    expect(claimed.map(({ fileId }) => fileId).sort()).toEqual(waiting);
    const byAlice = claimed.filter(({ owner }) => owner === alice).map(({ fileId }) => fileId);
    expect(byAlice).toEqual(waiting.filter((_, i) => i % 2 === 0));
    expect(await passageVectors.claimNext()).toBeUndefined();
    await passageVectors.reset(model);
    expect(await passageVectors.claimNext()).toBeUndefined();
    await passageVectors.reset('new model');
    expect(await passageVectors.claimNext()).toBeDefined();
    expect(await fileTexts.claimNext(reading)).toMatchObject({ owner: reading });
  });

  it('takes what a host was reading or embedding when it died, once that is known', async () => {
    await claimAll();
    const [dead, live] = [await test.another({ hostId: 'dead' }), test.store];
    const [left, kept] = [await addFile(live, newOwner()), await addFile(live, newOwner())];
    const claimed = [await dead.passageVectors.claimNext(), await live.passageVectors.claimNext()];
    const [ofDead] = claimed;
    expect(claimed).toEqual(expect.arrayContaining([left, kept]));
    const { owner, fileId } = await addUnread(live, newOwner());
    await dead.fileTexts.claimNext(owner);
    expect(await live.files.hosts()).toContain('dead');
    expect(await live.files.releaseClaims([])).toBe(false);
    expect(await live.files.releaseClaims(['other'])).toBe(false);
    expect(await live.fileTexts.claimNext(owner)).toBeUndefined();
    expect(await live.files.releaseClaims(['dead'])).toBe(true);
    expect(await live.fileTexts.claimNext(owner)).toMatchObject({ id: fileId, attempt: 1 });
    expect(await live.passageVectors.claimNext()).toEqual(ofDead);
    expect(await live.passageVectors.claimNext()).toBeUndefined();
    expect(await live.files.releaseClaims(['dead'])).toBe(false);
    expect(await live.files.hosts()).not.toContain('dead');
  });

  it('takes files of two users with the same id one after the other', async () => {
    const { passageVectors } = test.store;
    await claimAll();
    const first = await addFile(test.store, newOwner());
    const second = await copyFile(test.store, first);
    const claimed = [await passageVectors.claimNext(), await passageVectors.claimNext()];
    expect(claimed).toHaveLength(2);
    expect(claimed).toEqual(expect.arrayContaining([first, second]));
    expect(await passageVectors.claimNext()).toBeUndefined();
  });

  it('takes the file of each user equally often, also if one has many more', async () => {
    const { passageVectors } = test.store;
    await claimAll();
    const [many, one] = [newOwner(), newOwner()];
    for (let i = 0; i < 9; i += 1) await addFile(test.store, many);
    await addFile(test.store, one);
    const random = vi.spyOn(Math, 'random');
    onTestFinished(() => random.mockRestore());
    const owners: (string | undefined)[] = [];
    for (const value of [0, 0.25, 0.5, 0.75]) {
      random.mockReturnValue(value);
      const key = await passageVectors.claimNext();
      owners.push(key?.owner);
      if (key) await passageVectors.release(key);
    }
    expect(owners.filter((owner) => owner === one)).toHaveLength(2);
    expect(owners.filter((owner) => owner === many)).toHaveLength(2);
  });

  /** Leaves nothing of other tests to claim. */
  async function claimAll(): Promise<void> {
    while (await test.store.passageVectors.claimNext());
  }
});

describe.each(engines)('PassageEmbedder on %s', (engine) => {
  // It works on the files of all users.
  const test = useStore(engine, { hasTwins: false });

  it('continues a file where the model failed, and asks for no passage twice', async () => {
    const key = await addFile(test.store, newOwner(), 'long.txt', 100);
    const asked: string[] = [];
    const failed = Promise.withResolvers<void>();
    const start = (isDown: (texts: readonly string[]) => boolean) => {
      const embed = async (texts: readonly string[]) => {
        if (isDown(texts)) {
          failed.resolve();
          throw new Error('The model is down');
        }
        asked.push(...texts);
        return texts.map(() => near);
      };
      const { passageVectors: vectors } = test.store;
      return new PassageEmbedder({ vectors, embeddings: { model, embed }, logger: silent });
    };
    const first = start((texts) => texts.includes('passage 70'));
    await failed.promise;
    await first.close();
    const second = start(() => false);
    onTestFinished(() => second.close());
    const search = { owner: key.owner, model, vector: near, limit: 200 };
    await expect.poll(() => test.store.passageVectors.search(search)).toHaveLength(100);
    expect(asked).toEqual(Array.from({ length: 100 }, (_, n) => `passage ${n}`));
  });
});
