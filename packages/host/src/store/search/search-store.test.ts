import { existsSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, vi } from 'vitest';
import { countEventLoopTurns } from '../../../test/support/event-loop-turns.js';
import { readRows } from '../../../test/support/stored-rows.js';
import { engines, newOwner, useStore } from '../../../test/support/test-database.js';
import type { Store } from '../store.js';

const oracleDid = 'did:key:zOracle';

async function openSession(store: Store, owner = newOwner(), title?: string) {
  const { sessionId } = await store.sessions.create({ owner, oracleDid, title });
  const say = async (content: string, type: 'human' | 'ai' = 'human') => {
    const body = { owner, sessionId, type, content, requestId: 'r', isComplete: true } as const;
    return (await store.messages.append(body))?.id ?? '';
  };
  return { owner, sessionId, say };
}

async function indexAll({ search }: Store): Promise<void> {
  while (await search.indexPass());
}

async function find({ search }: Store, owner: string, text: string, limit = 20, offset = 0) {
  const result = await search.findMessages({ owner, text, limit, offset });
  return (result?.found ?? []).map(({ snippet }) => snippet.text);
}

describe.each(engines)('SearchStore on %s', (engine) => {
  const test = useStore(engine);

  it('findMessages finds words, beginnings of words and phrases, in any case and without accents', async () => {
    const { store } = test;
    const { owner, say } = await openSession(store);
    await say('The Café in São Paulo is open');
    await say('A carbon footprint of soil');
    await say('soil of carbon, and a foot');
    await say('東京都の天気は晴れです');
    await indexAll(store);
    expect(await find(store, owner, 'cafe sao')).toEqual(['The Café in São Paulo is open']);
    expect(await find(store, owner, 'foot')).toHaveLength(2);
    expect(await find(store, owner, 'foot ')).toEqual(['soil of carbon, and a foot']);
    expect(await find(store, owner, 'soil foot')).toHaveLength(2);
    expect(await find(store, owner, '"carbon footprint"')).toHaveLength(1);
    expect(await find(store, owner, '"footprint carbon"')).toEqual([]);
    expect(await find(store, owner, '天気')).toHaveLength(1);
    expect(await find(store, owner, '京')).toHaveLength(1);
    expect(await find(store, owner, '気天')).toEqual([]);
    expect(await find(store, owner, 'paris')).toEqual([]);
    expect(await store.search.findMessages({ owner, text: '"- !', limit: 1, offset: 0 })).toBe(
      undefined,
    );
  });

  it('findMessages finds nothing in a session that no list shows, and everything once a list shows it', async () => {
    const { store } = test;
    const { owner, say } = await openSession(store);
    const id = await say('a walrus');
    const last = await store.messages.find({ owner, messageId: id });
    if (!last) throw new Error('It was stored');
    const wanted = { owner, oracleDid, title: 'Walrus', isUnlisted: true };
    const hidden = await store.sessions.create(wanted);
    const body = { owner, type: 'human', requestId: 'r', isComplete: true } as const;
    await store.messages.append({
      ...body,
      sessionId: hidden.sessionId,
      content: 'another walrus',
    });
    const copy = await store.sessions.create(wanted);
    await indexAll(store);
    expect(await find(store, owner, 'walrus')).toEqual(['a walrus']);
    await store.messages.copy(last, copy.sessionId);
    await indexAll(store);
    expect((await find(store, owner, 'walrus')).sort()).toEqual(['Walrus', 'a walrus', 'a walrus']);
  });

  it('findMessages finds the very word first, the best first, and then longer words, the newest first', async () => {
    const { store } = test;
    const { owner, say } = await openSession(store);
    const texts = ['otters, otters, otters', 'one otter in a long text', 'otter otter', 'otters'];
    for (const text of texts) {
      await say(text);
      // None is as old as another.
      await sleep(2);
    }
    await indexAll(store);
    const [longer, long, best, newest] = texts;
    expect(await find(store, owner, 'otter')).toEqual([best, long, newest, longer]);
    expect(await find(store, owner, 'otte')).toEqual(texts.toReversed());
  });

  it('findMessages ranks, highlights and pages', async () => {
    const { store } = test;
    const { owner, sessionId, say } = await openSession(store);
    const long = `${'filler words here. '.repeat(30)}At last a zebra. ${'and so on '.repeat(30)}`;
    await say(long, 'ai');
    const best = await say('zebra, zebra and zebra');
    for (let i = 0; i < 5; i++) await say(`number ${i} with one zebra ${'more words '.repeat(20)}`);
    await indexAll(store);
    const { found = [], hasMore } =
      (await store.search.findMessages({ owner, text: 'zebra', limit: 5, offset: 0 })) ?? {};
    expect(found).toHaveLength(5);
    expect(hasMore).toBe(true);
    expect(found[0]).toMatchObject({ sessionId, message: { id: best, type: 'human' } });
    expect(found.map(({ score }) => score)).toEqual(
      found.map(({ score }) => score).toSorted((a, b) => b - a),
    );
    const rest = await store.search.findMessages({ owner, text: 'zebra', limit: 5, offset: 5 });
    expect(rest?.found).toHaveLength(2);
    expect(rest?.hasMore).toBe(false);
    for (const { snippet } of [...found, ...(rest?.found ?? [])]) {
      expect(snippet.text.length).toBeLessThan(300);
      expect(snippet.highlights.length).toBeGreaterThan(0);
      for (const [start, end] of snippet.highlights)
        expect(snippet.text.slice(start, end)).toBe('zebra');
    }
  });

  it('findMessages finds titles, and only what belongs to the user', async () => {
    const { store } = test;
    const mine = await openSession(store, undefined, 'Gardening in winter');
    const other = await openSession(store, undefined, 'Gardening secrets');
    await other.say('gardening is mine alone');
    await indexAll(store);
    const result = await store.search.findMessages({
      owner: mine.owner,
      text: 'gardening',
      limit: 10,
      offset: 0,
    });
    const { sessionId } = mine;
    expect(result?.found).toMatchObject([{ sessionId, title: 'Gardening in winter' }]);
    expect(result?.found[0]).not.toHaveProperty('message');
    await store.sessions.rename({ ...mine, title: 'Skiing' });
    await indexAll(store);
    expect(await find(store, mine.owner, 'gardening')).toEqual([]);
    expect(await find(store, mine.owner, 'skiing')).toEqual(['Skiing']);
  });

  it('the index forgets deleted sessions and users', async () => {
    const { store } = test;
    const first = await openSession(store, undefined, 'Kept walrus');
    const second = await openSession(store, first.owner, 'Deleted walrus');
    await second.say('a walrus');
    await indexAll(store);
    const request = { owner: first.owner, sources: ['message', 'title'], limit: 10 };
    const hits = async () =>
      (
        await store.search.index.find({
          ...request,
          query: [{ terms: ['walrus'], isPrefix: false }],
        })
      ).length;
    expect(await hits()).toBe(3);
    await store.sessions.delete(second);
    // At once, although the index still has them.
    expect(await find(store, first.owner, 'walrus')).toEqual(['Kept walrus']);
    await indexAll(store);
    expect(await hits()).toBe(1);
    await store.search.index.removeOwner(first.owner);
    expect(await hits()).toBe(0);
  });

  it('indexPass continues after a restart, and indexes a changed message again', async () => {
    const { store } = test;
    const { owner, say } = await openSession(store);
    await say('first okapi');
    const second = await test.another();
    await indexAll(second);
    expect(await find(second, owner, 'okapi')).toHaveLength(1);
    expect(await store.search.indexPass()).toBe(false);
  });

  it('findMessages returns the texts of the user, also if an import has the ids of another user', async () => {
    const { store } = test;
    const victim = await openSession(store, undefined, 'Secret puffin');
    const messageId = await victim.say('a secret puffin');
    const owner = newOwner();
    const [session] = await readRows(store, 'sessions', victim.owner);
    const [message] = await readRows(store, 'messages', victim.owner);
    expect(message).toMatchObject({ id: messageId });
    await store.imports.insert(owner, 'sessions', [{ ...session, title: 'Open heron' }]);
    await store.imports.insert(owner, 'messages', [{ ...message, content: 'an open heron' }]);
    await indexAll(store);
    expect(await find(store, owner, 'puffin')).toEqual([]);
    expect((await find(store, owner, 'heron')).sort()).toEqual(['Open heron', 'an open heron']);
    expect(await find(store, victim.owner, 'heron')).toEqual([]);
    const secrets = ['Secret puffin', 'a secret puffin'];
    expect((await find(store, victim.owner, 'puffin')).sort()).toEqual(secrets);
    const search = { text: 'a', limit: 20, offset: 0 };
    const readTitles = async (from: string) =>
      (await store.search.findMessages({ ...search, owner: from }))?.found.map(
        ({ title }) => title,
      );
    expect(await readTitles(owner)).toEqual(['Open heron']);
    expect(await readTitles(victim.owner)).toEqual(['Secret puffin']);
  });

  it('indexPass indexes some texts at a time, and none is forgotten', async () => {
    const { store } = test;
    await indexAll(store);
    const { owner, say } = await openSession(store);
    for (let i = 0; i < 140; i++) await say(`tapir ${i}`);
    expect(await store.search.indexPass()).toBe(true);
    const count = async () => (await find(store, owner, 'tapir', 200)).length;
    expect(await count()).toBeLessThan(140);
    await indexAll(store);
    expect(await count()).toBe(140);
  });

  it('indexPass indexes a title again that changes meanwhile', async () => {
    const { store } = test;
    await indexAll(store);
    const session = await openSession(store, undefined, 'Early lemur');
    const { index } = store.search;
    const put = index.put.bind(index);
    const spy = vi.spyOn(index, 'put').mockImplementationOnce(async (...entries) => {
      await store.sessions.rename({ ...session, title: 'Late quokka' });
      return put(...entries);
    });
    await store.search.indexPass();
    spy.mockRestore();
    await indexAll(store);
    expect(await find(store, session.owner, 'quokka')).toEqual(['Late quokka']);
  });

  it('two stores may index at the same time', async () => {
    const { store } = test;
    const second = await test.another();
    const { owner, say } = await openSession(store);
    await Promise.all(Array.from({ length: 60 }, (_, i) => say(`gnu ${i}`)));
    await Promise.all([indexAll(store), indexAll(second)]);
    await indexAll(store);
    expect(await find(store, owner, 'gnu', 50)).toHaveLength(50);
    expect(await find(store, owner, 'gnu', 50, 50)).toHaveLength(10);
  });
});

describe('SearchStore on SQLite', () => {
  const test = useStore('sqlite');

  it('opens the index when there is something to index or to find', async () => {
    const path = join(test.options.dataDir, 'search.db');
    expect(await test.store.search.indexPass()).toBe(false);
    expect(existsSync(path)).toBe(false);
    const { owner, say } = await openSession(test.store);
    await say('an axolotl');
    await indexAll(test.store);
    expect(existsSync(path)).toBe(true);
    const second = await test.another();
    const open = vi.spyOn(second.search.index, 'readGeneration');
    expect(await second.search.indexPass()).toBe(false);
    expect(open).not.toHaveBeenCalled();
    expect(await find(second, owner, 'axolotl')).toEqual(['an axolotl']);
    expect(open).toHaveBeenCalledOnce();
    // Nothing is indexed again.
    expect(await second.search.indexPass()).toBe(false);
  });

  it('findMessages lets other work have a turn after 10,000 characters', async () => {
    const { owner, say } = await openSession(test.store);
    for (let i = 0; i < 30; i++) await say('a gnu '.repeat(500));
    await indexAll(test.store);
    const readTurns = countEventLoopTurns();
    expect(await find(test.store, owner, 'gnu', 30)).toHaveLength(30);
    expect(readTurns()).toBeGreaterThanOrEqual(7);
  });

  it('builds an index again that is damaged, at the first search', async () => {
    const first = await test.another();
    const { owner, say } = await openSession(first, undefined, 'A title');
    await say('an ibex');
    await indexAll(first);
    await first.search.close();
    const path = join(test.options.dataDir, 'search.db');
    for (const end of ['-wal', '-shm']) rmSync(path + end, { force: true });
    writeFileSync(path, 'not a database');
    const second = await test.another();
    expect(await second.search.indexPass()).toBe(false);
    expect(await find(second, owner, 'ibex')).toEqual([]);
    await indexAll(second);
    expect(await find(second, owner, 'ibex')).toEqual(['an ibex']);
  });

  it('builds an index again that was lost', async () => {
    const first = await test.another();
    const { owner, say } = await openSession(first, undefined, 'A title');
    await say('an axolotl');
    await indexAll(first);
    await first.search.close();
    const { dataDir } = test.options;
    for (const name of readdirSync(dataDir))
      if (name.startsWith('search.db')) rmSync(join(dataDir, name));
    const second = await test.another();
    expect(await find(second, owner, 'axolotl')).toEqual([]);
    await indexAll(second);
    expect(await find(second, owner, 'axolotl')).toEqual(['an axolotl']);
    expect(await find(second, owner, 'title')).toEqual(['A title']);
  });
});
