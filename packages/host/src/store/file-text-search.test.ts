import { describe, expect, it } from 'vitest';
import { countEventLoopTurns } from '../../test/support/event-loop-turns.js';
import { newOwner, useStore } from '../../test/support/test-database.js';
import type { FileKey } from './file-store.js';
import { LEASE_MS } from './file-text-store.js';
import type { Store } from './store.js';

async function addFile({ files }: Store, owner: string, name = 'a.txt'): Promise<FileKey> {
  const room = { storage: 'database', chunkBytes: 1_000, maxBytes: 1_000_000_000 } as const;
  const key = await files.begin({ owner, name, size: 10, ...room });
  if (!key) throw new Error('The owner has too little space left');
  const read = { mediaType: 'text/plain', textStatus: 'pending', hash: key.fileId } as const;
  await files.finish({ ...key, size: 10, ...read });
  return key;
}

/** Adds texts as the passages of a file. */
const addTexts = ({ fileTexts }: Store, key: FileKey, texts: readonly string[]) =>
  fileTexts.add(
    key,
    texts.map((text, n) => ({ n, place: n + 1, position: `page ${n + 1}`, text })),
  );

describe('FileTextStore.search', () => {
  const test = useStore('sqlite');

  /** A file with these passages, and a search that returns the texts that it finds. */
  async function open(texts: readonly string[], name?: string) {
    const key = await addFile(test.store, newOwner(), name);
    if (texts.length > 0) await addTexts(test.store, key, texts);
    const { owner, fileId } = key;
    const search = (query: string, limit = 1_000) =>
      test.store.fileTexts.search({ owner, query, limit });
    const find = async (query: string, limit?: number) =>
      (await search(query, limit)).map(({ text }) => text);
    return { owner, fileId, search, find };
  }

  it('returns where a passage is, and the name of its file', async () => {
    const { fileId, search } = await open(['a lion', 'a Zebra!'], 'animals.pdf');
    expect(await search('zebra')).toEqual([
      { n: 1, place: 2, position: 'page 2', text: 'a Zebra!', fileId, file: 'animals.pdf' },
    ]);
  });

  it('finds nothing without a word or without a passage', async () => {
    const { find } = await open(['a zebra']);
    for (const query of ['', '?! …', 'lion']) expect(await find(query)).toEqual([]);
    expect(await (await open([])).find('zebra')).toEqual([]);
  });

  it('lets other work have a turn while it ranks many passages', async () => {
    const { find } = await open(Array.from({ length: 100 }, (_, i) => `zebra ${i}`));
    const readTurns = countEventLoopTurns();
    expect(await find('zebra')).toHaveLength(100);
    expect(readTurns()).toBeGreaterThanOrEqual(10);
  });

  it('reads nothing of a query as syntax', async () => {
    const { find } = await open(['a zebra', 'a lion']);
    expect(await find('ZEBRA" OR scope:*')).toEqual(['a zebra']);
    expect(await find('zeb*')).toEqual([]);
    expect(await find('-zebra')).toEqual(['a zebra']);
  });

  it('ignores words that say nothing, unless there are no others', async () => {
    const { find } = await open(['what is it', 'a zebra']);
    expect(await find('What is a zebra?')).toEqual(['a zebra']);
    expect(await find('What is it?')).toEqual(['what is it']);
    expect(await find('where will you')).toEqual([]);
  });

  it('returns a passage with several words once, and before those with one of them', async () => {
    const { find } = await open(['zebra and horse', 'lion and horse', 'a zebra, a lion', 'tiger']);
    const found = await find('zebra lion');
    expect(found[0]).toBe('a zebra, a lion');
    expect(found.toSorted()).toEqual(['a zebra, a lion', 'lion and horse', 'zebra and horse']);
    expect(await find('zebra lion', 1)).toEqual(['a zebra, a lion']);
    expect(await find('zebra zebra')).toHaveLength(2);
  });

  it('prefers passages that contain a word more often, and shorter ones', async () => {
    const often = await open(['zebra one two six', 'zebra zebra one two', 'zebra two one six']);
    expect((await often.find('zebra'))[0]).toBe('zebra zebra one two');
    const long = `zebra ${'word '.repeat(30)}`;
    const short = await open([long, 'zebra word']);
    expect(await short.find('zebra')).toEqual(['zebra word', long]);
  });

  it('weighs the number of occurrences against the length of a passage', async () => {
    const build = (count: number, length: number) =>
      [...Array(count).fill('zebra'), ...Array(length - count).fill('word')].join(' ');
    // Twice in a text that is somewhat longer is better, in a much longer one it is not.
    const [once, twice] = [build(1, 8), build(2, 20)];
    expect(await (await open([once, twice])).find('zebra')).toEqual([twice, once]);
    const [brief, lengthy] = [build(1, 4), build(2, 30)];
    expect(await (await open([lengthy, brief])).find('zebra')).toEqual([brief, lengthy]);
  });

  it('prefers passages with a rare word', async () => {
    const common = Array.from({ length: 6 }, (_, i) => `lion lion number${i}`);
    const { find } = await open([...common, 'one zebra here']);
    const found = await find('lion zebra');
    expect(found[0]).toBe('one zebra here');
    expect(found).toHaveLength(7);
  });

  it('searches for words of at most 64 characters, the 8 longest of a query', async () => {
    const [long, tooLong] = ['x'.repeat(64), 'y'.repeat(65)];
    const words = await open([long, tooLong]);
    expect(await words.find(`${long} ${tooLong}`)).toEqual([long]);
    const longest = Array.from({ length: 8 }, (_, i) => `animal${i}`);
    const many = await open(['bear', ...longest]);
    expect((await many.find(`bear ${longest.join(' ')}`)).toSorted()).toEqual(longest);
    expect(await many.find(`bear ${longest.slice(1).join(' ')}`)).toContain('bear');
  });

  it('reads the first 1000 characters of a query', async () => {
    const { find } = await open(['zebra', 'lion']);
    expect(await find(`${' '.repeat(995)}zebra lion`)).toEqual(['zebra']);
    expect(await find(`${' '.repeat(996)}zebra lion`)).toEqual([]);
  });

  it('ranks at most 100 passages with a word, none of them of another user', async () => {
    const texts = Array.from({ length: 120 }, (_, i) => `zebra ${i}`);
    const other = await open(texts.map((text) => `foreign ${text}`));
    const mine = await open(texts);
    const found = await mine.find('zebra');
    expect(found).toHaveLength(100);
    expect(found.every((text) => text.startsWith('zebra'))).toBe(true);
    expect(await mine.find('foreign')).toEqual([]);
    expect(await other.find('foreign', 5)).toHaveLength(5);
  });

  it('finds nothing in a file of another user that has the same id', async () => {
    const { owner, fileId, search } = await open(['a zebra']);
    const { fileTexts } = test.store;
    const stranger = newOwner();
    const query = { query: 'zebra', limit: 10 };
    expect(await fileTexts.search({ owner: stranger, fileId, ...query })).toEqual([]);
    expect(await fileTexts.search({ owner, fileId, ...query })).toEqual(await search('zebra'));
    expect(await fileTexts.search({ owner, fileId: '', ...query })).toEqual([]);
  });
});

describe('the lease of a file that is being read', () => {
  let now = 1_700_000_000_000;
  const test = useStore('sqlite', { clock: () => now });
  const claim = async (owner: string) => (await test.store.fileTexts.claimNext(owner))?.id;

  it('lasts a minute, and each passage that is added extends it', async () => {
    const owner = newOwner();
    const key = await addFile(test.store, owner);
    expect(await claim(owner)).toBe(key.fileId);
    now += LEASE_MS;
    expect(await claim(owner)).toBeUndefined();
    expect(await test.store.fileTexts.listWaitingOwners()).not.toContain(owner);
    await addTexts(test.store, key, ['zebra']);
    now += LEASE_MS;
    expect(await claim(owner)).toBeUndefined();
    now += 1;
    expect(await test.store.fileTexts.listWaitingOwners()).toContain(owner);
    expect(await claim(owner)).toBe(key.fileId);
  });

  it('ends when the file is released, which does not count as an attempt', async () => {
    const { fileTexts } = test.store;
    const owner = newOwner();
    const key = await addFile(test.store, owner);
    for (let i = 0; i < 5; i += 1) {
      expect(await claim(owner)).toBe(key.fileId);
      await fileTexts.release(key);
    }
    expect(await claim(owner)).toBe(key.fileId);
    await fileTexts.release(key, 1000);
    expect(await claim(owner)).toBeUndefined();
    now += 1001;
    expect(await claim(owner)).toBe(key.fileId);
    await fileTexts.release(key);
    expect(await claim(owner)).toBe(key.fileId);
    await fileTexts.release({ ...key, owner: newOwner() });
    await fileTexts.release({ owner, fileId: 'unknown' });
    expect(await claim(owner)).toBeUndefined();
  });

  it('is given three times, then the file says why it was not read', async () => {
    const { files } = test.store;
    const owner = newOwner();
    const key = await addFile(test.store, owner);
    for (let i = 0; i < 3; i += 1) {
      expect(await claim(owner)).toBe(key.fileId);
      now += LEASE_MS + 1;
    }
    expect(await claim(owner)).toBeUndefined();
    expect((await files.get(key)).text).toEqual({
      status: 'failed',
      error: 'reading it ended unexpectedly several times',
    });
  });

  it('ends with what was read of the file', async () => {
    const { files, fileTexts } = test.store;
    const owner = newOwner();
    const [whole, part] = [await addFile(test.store, owner), await addFile(test.store, owner)];
    const all = { unit: 'sheet', count: 3, isComplete: true } as const;
    const some = { unit: 'line', count: 0, isComplete: false } as const;
    await fileTexts.finish(whole, all);
    await fileTexts.finish(part, some);
    const read = async (key: FileKey) => (await files.get(key)).text;
    expect(await read(whole)).toEqual({ status: 'ready', ...all });
    expect(await read(part)).toEqual({ status: 'ready', ...some });
    expect(await claim(owner)).toBeUndefined();
  });
});
