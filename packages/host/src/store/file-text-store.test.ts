import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it } from 'vitest';
import { copyFile } from '../../test/support/stored-rows.js';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import type { FileKey, StoredFile } from './file-store.js';
import { LEASE_MS, type Passage } from './file-text-store.js';
import type { Store } from './store.js';

const outcome = { unit: 'page', count: 1, isComplete: true } as const;

/** Stores a file whose text is to be read, unless another status is given. */
async function addFile(
  { files }: Store,
  owner: string,
  textStatus: StoredFile['text']['status'] = 'pending',
): Promise<FileKey> {
  const room = { storage: 'database', chunkBytes: 1_000, maxBytes: 1_000_000 } as const;
  const key = await files.begin({ owner, name: 'a.txt', size: 10, ...room });
  if (!key) throw new Error('The owner has too little space left');
  const hash = key.fileId;
  await files.finish({ ...key, size: 10, hash, mediaType: 'text/plain', textStatus });
  return key;
}

const createPassage = (n: number, text = `passage ${n}`): Passage => ({
  n,
  place: n + 1,
  position: `page ${n + 1}`,
  text,
});

describe.each(engines)('FileTextStore on %s', (engine) => {
  let now = 1_700_000_000_000;
  const test = useStore(engine, { clock: () => now });
  const getStatus = async (key: FileKey) => (await test.store.files.get(key)).text.status;

  it('FileTextStore.claimNext takes the unread files of one user in order, each again when its host has died', async () => {
    const { fileTexts } = test.store;
    await addFile(test.store, newOwner());
    const owner = newOwner();
    await addFile(test.store, owner, 'none');
    const first = await addFile(test.store, owner);
    const second = await addFile(test.store, owner);
    expect(await fileTexts.claimNext(owner)).toMatchObject({ owner, id: first.fileId });
    expect(await fileTexts.claimNext(owner)).toMatchObject({ owner, id: second.fileId });
    expect(await fileTexts.claimNext(owner)).toBeUndefined();
    now += LEASE_MS + 1;
    expect(await fileTexts.claimNext(owner)).toMatchObject({ id: first.fileId });
  });

  it('FileTextStore.claimNext does not return a file whose reading never ended three times, but one that was released', async () => {
    const { files, fileTexts } = test.store;
    const owner = newOwner();
    const broken = await addFile(test.store, owner);
    for (let attempt = 1; attempt <= 3; attempt += 1) {
      expect(await fileTexts.claimNext(owner)).toMatchObject({ id: broken.fileId });
      now += LEASE_MS + 1;
    }
    const { fileId } = await addFile(test.store, owner);
    expect(await fileTexts.claimNext(owner)).toMatchObject({ id: fileId });
    expect(await files.get(broken)).toHaveProperty('text.status', 'failed');
    await fileTexts.release({ owner, fileId });
    expect(await fileTexts.claimNext(owner)).toMatchObject({ id: fileId });
  });

  it('the death of a host does not count as an attempt to read a file, and a host that was only frozen changes nothing', async () => {
    const { files, fileTexts } = test.store;
    const owner = newOwner();
    const key = await addFile(test.store, owner);
    const dead = await test.another({ hostId: 'dead', clock: () => now });
    const claims = [];
    for (let death = 0; death < 5; death++) {
      claims.push(await dead.fileTexts.claimNext(owner));
      expect(await test.forAllUsers(() => files.releaseClaims(['dead']))).toBe(true);
    }
    expect(claims).toEqual(Array(5).fill(expect.objectContaining({ id: key.fileId, attempt: 1 })));
    expect(await fileTexts.claimNext(owner)).toMatchObject({ id: key.fileId, attempt: 1 });
    const frozen = { ...key, attempt: 1 };
    expect(await dead.fileTexts.extend(frozen)).toBe(false);
    expect(await dead.fileTexts.add(frozen, [createPassage(0)])).toBe(false);
    await dead.fileTexts.finish(frozen, outcome);
    expect(await getStatus(key)).toBe('pending');
    await fileTexts.finish(frozen, outcome);
    expect(await getStatus(key)).toBe('ready');
  });

  it('a host that lost its claim to another one changes nothing', async () => {
    const { files, fileTexts } = test.store;
    const owner = newOwner();
    const key = await addFile(test.store, owner);
    const first = { ...key, attempt: (await fileTexts.claimNext(owner))?.attempt };
    now += LEASE_MS;
    expect(await fileTexts.extend(first)).toBe(true);
    now += LEASE_MS;
    expect(await fileTexts.claimNext(owner)).toBeUndefined();
    now += 1;
    const second = { ...key, attempt: (await fileTexts.claimNext(owner))?.attempt };
    expect(await fileTexts.add(second, [createPassage(0)])).toBe(true);
    expect(await fileTexts.extend(first)).toBe(false);
    expect(await fileTexts.add(first, [createPassage(1)])).toBe(false);
    await fileTexts.release(first);
    await fileTexts.fail(first, 'too slow');
    await fileTexts.finish(first, outcome);
    expect(await fileTexts.claimNext(owner)).toBeUndefined();
    expect(await getStatus(key)).toBe('pending');
    await fileTexts.finish(second, outcome);
    expect(await files.get(key)).toMatchObject({ text: { status: 'ready', ...outcome } });
    expect(await fileTexts.read(key, { from: 0, limit: 10 })).toEqual([createPassage(0)]);
  });

  it('FileTextStore.claimNext deletes the text of a file that it fails', async () => {
    const { fileTexts } = test.store;
    const owner = newOwner();
    const key = await addFile(test.store, owner);
    for (let attempt = 1; attempt <= 3; attempt += 1) {
      await fileTexts.claimNext(owner);
      now += LEASE_MS + 1;
    }
    await fileTexts.add(key, [createPassage(0)]);
    now += LEASE_MS + 1;
    expect(await fileTexts.claimNext(owner)).toBeUndefined();
    expect(await getStatus(key)).toBe('failed');
    expect(await fileTexts.read(key, { from: 0, limit: 10 })).toEqual([]);
    expect(await fileTexts.measure(owner)).toBe(0);
  });

  it('FileTextStore.release takes one from the attempts of the file of one user', async () => {
    const { fileTexts } = test.store;
    const often = await addFile(test.store, newOwner());
    const once = await copyFile(test.store, often);
    for (const key of [often, often, often, once]) {
      expect(await fileTexts.claimNext(key.owner)).toMatchObject({ id: key.fileId });
      now += LEASE_MS + 1;
    }
    for (const key of [often, once]) await fileTexts.release(key);
    /** How often its host may still die. */
    const countClaims = async ({ owner }: FileKey) => {
      let count = 0;
      for (; await fileTexts.claimNext(owner); count += 1) now += LEASE_MS + 1;
      return count;
    };
    expect(await countClaims(often)).toBe(1);
    expect(await countClaims(once)).toBe(3);
  });

  it('FileTextStore.finish and fail end the reading of one file, once', async () => {
    const { files, fileTexts } = test.store;
    const owner = newOwner();
    const [read, failed, waiting] = [
      await addFile(test.store, owner),
      await addFile(test.store, owner),
      await addFile(test.store, owner),
    ];
    await fileTexts.finish(read, outcome);
    await fileTexts.fail(failed, 'damaged');
    await fileTexts.finish(failed, outcome);
    await fileTexts.fail({ ...waiting, owner: newOwner() }, 'not mine');
    expect(await files.get(read)).toMatchObject({ text: { status: 'ready', ...outcome } });
    expect((await files.get(failed)).text).toEqual({ status: 'failed', error: 'damaged' });
    expect(await getStatus(waiting)).toBe('pending');
  });

  it('FileTextStore.add adds passages only to a file that is being read', async () => {
    const { files, fileTexts } = test.store;
    const owner = newOwner();
    const key = await addFile(test.store, owner);
    const deleted = await addFile(test.store, owner);
    await files.hide(deleted, 'ready');
    expect(await fileTexts.add(key, [createPassage(0)])).toBe(true);
    expect(await fileTexts.add(deleted, [createPassage(0)])).toBe(false);
    expect(await fileTexts.add({ owner, fileId: 'unknown' }, [createPassage(0)])).toBe(false);
    await fileTexts.finish(key, outcome);
    expect(await fileTexts.add(key, [createPassage(1)])).toBe(false);
    expect(await fileTexts.read(key, { from: 0, limit: 10 })).toEqual([createPassage(0)]);
  });

  it('FileTextStore.read returns passages of one file from a place on, up to the limit', async () => {
    const { fileTexts } = test.store;
    const owner = newOwner();
    const key = await addFile(test.store, owner);
    const passages = [0, 1, 2, 3].map((n) => createPassage(n));
    await fileTexts.add(key, passages);
    await fileTexts.add(await addFile(test.store, owner), [createPassage(1, 'another file')]);
    addTwinPassages(owner);
    expect(await fileTexts.read(key, { from: 2, limit: 2 })).toEqual(passages.slice(1, 3));
    expect(await fileTexts.read(key, { from: 2, limit: 10 })).toEqual(passages.slice(1));
    const foreign = { ...key, owner: newOwner() };
    expect(await fileTexts.read(foreign, { from: 0, limit: 10 })).toEqual([]);
  });

  it('FileTextStore.search finds passages of one user, and of one file if it is given', async () => {
    const { files, fileTexts } = test.store;
    const owner = newOwner();
    const [first, second, deleted, foreign] = [
      await addFile(test.store, owner),
      await addFile(test.store, owner),
      await addFile(test.store, owner),
      await addFile(test.store, newOwner()),
    ];
    for (const key of [first, second, deleted, foreign])
      await fileTexts.add(key, [createPassage(0, 'the oracle of Delphi'), createPassage(1)]);
    await files.hide(deleted, 'ready');
    addTwinPassages(owner, 300);
    const search = async (fileId?: string, limit = 10) =>
      (await fileTexts.search({ owner, fileId, query: 'Delphi', limit })).map(
        (each) => each.fileId,
      );
    expect((await search()).sort()).toEqual([first.fileId, second.fileId]);
    expect(await search(second.fileId)).toEqual([second.fileId]);
    expect(await search(foreign.fileId)).toEqual([]);
    expect(await search(undefined, 1)).toHaveLength(1);
  });

  it('FileTextStore.deleteAll deletes all passages and vectors of one file', async () => {
    const { fileTexts, passageVectors } = test.store;
    const owner = newOwner();
    const key = await addFile(test.store, owner);
    const other = await addFile(test.store, owner);
    const vector = new Uint8Array([127, 0]);
    await fileTexts.add(
      key,
      Array.from({ length: 100 }, (_, n) => createPassage(n)),
    );
    await fileTexts.add(other, [createPassage(0), createPassage(200)]);
    for (const each of [key, other]) {
      await fileTexts.finish(each, outcome);
      await passageVectors.put(each, 'model', [{ n: 0, vector }]);
      await passageVectors.finish(each, 'model');
    }
    addTwinPassages(owner, 300);
    await fileTexts.deleteAll({ ...other, owner: newOwner() });
    await fileTexts.deleteAll(key);
    expect(await fileTexts.read(key, { from: 0, limit: 10 })).toEqual([]);
    expect(await fileTexts.read(other, { from: 0, limit: 10 })).toHaveLength(2);
    expect(await passageVectors.search({ owner, model: 'model', vector, limit: 10 })).toMatchObject(
      [{ fileId: other.fileId, n: 0 }],
    );
    const twin = { ...key, owner: `did:copy:${owner}` };
    const kept = await fileTexts.read(twin, { from: 0, limit: 1_000 });
    expect(kept).toHaveLength(engine === 'sqlite' ? 100 : 0);
  });

  /** Passages have no twins, because on SQLite their key is a number. */
  function addTwinPassages(owner: string, shift = 0): void {
    if (engine !== 'sqlite') return;
    const handle = new DatabaseSync(join(test.options.dataDir, 'sibyl.db'), { timeout: 5_000 });
    handle.exec(
      `insert into file_passages (owner, file_id, n, place, position, scope, text)
        select 'did:copy:' || owner, file_id, n + ${shift}, place, position, scope, 'twin ' || text
        from file_passages where owner = '${owner}'`,
    );
    handle.close();
  }
});

describe.each(engines)('FileTextStore.search on %s', (engine) => {
  const test = useStore(engine);

  it.each([
    ['本公司的退款政策如下：三十天之内。', '退款政策是什么', '退'],
    ['京都のホテルに泊まりました。', 'ホテル', '京'],
    ['ร้านกาแฟอยู่ใกล้บ้าน', 'กาแฟ', 'บ้าน'],
    ['वह हिन्दी बोलते हैं', 'हिन्दी', 'बोलते'],
    ['Das Café in Zürich', 'cafe zurich', 'café', 'CAFE\u0301', 'Zürich'],
    ['A cafe in Zurich', 'café', 'Zürich'],
    ['Un cafe\u0301 noir', 'cafe', 'café'],
    ['PDFファイルを開く', 'pdf', 'PDF', 'PDFファイル', 'ファイル'],
    ['第3章とJSON形式', 'json', '第3章'],
  ])('finds %s by its words', async (text, ...queries) => {
    const { fileTexts } = test.store;
    const key = await addFile(test.store, newOwner());
    const passages = ['Something else', '完全不同', text, 'ไม่มีอะไร'];
    await fileTexts.add(
      key,
      passages.map((each, n) => createPassage(n, each)),
    );
    for (const query of queries) {
      const found = await fileTexts.search({ ...key, query, limit: 1 });
      expect([query, found]).toMatchObject([query, [{ text }]]);
    }
    expect(await fileTexts.search({ ...key, query: '火星', limit: 1 })).toEqual([]);
  });
});

describe.each(engines)('FileTextStore.listWaitingOwners on %s', (engine) => {
  let now = 1_700_000_000_000;
  const test = useStore(engine, { clock: () => now, hasTwins: false });

  it('returns each owner of unread files once, at most 100, those who wait longest', async () => {
    const { fileTexts } = test.store;
    const [waiting, claimed] = [newOwner(), newOwner()];
    await addFile(test.store, waiting);
    await addFile(test.store, waiting);
    await addFile(test.store, claimed);
    await addFile(test.store, newOwner(), 'none');
    await fileTexts.claimNext(claimed);
    expect(await fileTexts.listWaitingOwners()).toEqual([waiting]);
    now += LEASE_MS + 1;
    expect((await fileTexts.listWaitingOwners()).sort()).toEqual([waiting, claimed].sort());
    expect(await fileTexts.listWaitingOwners([claimed])).toEqual([waiting]);
    const others = Array.from({ length: 99 }, newOwner);
    for (const owner of others) await addFile(test.store, owner);
    const first = [waiting, claimed, ...others].slice(0, 100);
    expect(await fileTexts.listWaitingOwners()).toEqual(first);
    expect(await fileTexts.listWaitingOwners([waiting, claimed])).toEqual(others);
  });
});
