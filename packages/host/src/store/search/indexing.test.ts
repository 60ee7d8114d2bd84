import { rmSync } from 'node:fs';
import { join } from 'node:path';
import type { Kysely } from 'kysely';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { replaceSleep, waitForAbort } from '../../../test/support/replaced-sleep.js';
import {
  createTestDatabase,
  engines,
  newOwner,
  type TestDatabase,
  useStore,
} from '../../../test/support/test-database.js';
import { copySession } from '../../../test/support/test-runs.js';
import type { Database } from '../database.js';
import { openDatabase } from '../open-database.js';
import type { Schema } from '../schema/index.js';
import type { Store } from '../store.js';
import { queueForSearch, type SearchSource, SearchStore, startIndexing } from './search-store.js';
import { MAX_TEXT, parseQuery } from './terms.js';

const oracleDid = 'did:key:zOracle';

async function indexAll(search: SearchStore): Promise<number> {
  let passes = 1;
  while (await search.indexPass()) passes += 1;
  return passes;
}

async function find(search: SearchStore, owner: string, text: string) {
  const result = await search.findMessages({ owner, text, limit: 100, offset: 0 });
  return (result?.found ?? []).map(({ snippet }) => snippet.text).sort();
}

const say = (store: Store, session: { owner: string; sessionId: string }, content: string) =>
  store.messages.append({
    ...{ ...session, type: 'human', content, requestId: 'r', isComplete: true },
  });

describe('what SearchStore indexes', () => {
  const test = useStore('sqlite', { hasTwins: false, clock: () => 5_000 });

  async function openSession(title?: string, owner = newOwner()) {
    const { sessionId } = await test.store.sessions.create({ owner, oracleDid, title });
    return { owner, sessionId };
  }

  it('a session without a chosen title is not found by its placeholder', async () => {
    const { search } = test.store;
    const unnamed = await openSession();
    const named = await openSession('Untitled works', unnamed.owner);
    await indexAll(search);
    expect(await find(search, unnamed.owner, 'untitled')).toEqual(['Untitled works']);
    await test.store.sessions.rename({ ...named, title: 'Untitled' });
    await indexAll(search);
    expect(await find(search, unnamed.owner, 'works')).toEqual([]);
  });

  it('a found message has its session, its title, its writer and its time', async () => {
    const { search } = test.store;
    const session = await openSession('About otters');
    const message = await say(test.store, session, 'a walrus');
    await indexAll(search);
    const request = { owner: session.owner, text: 'walrus', limit: 1, offset: 0 };
    const result = await search.findMessages(request);
    expect(result).toEqual({
      found: [
        {
          sessionId: session.sessionId,
          title: 'About otters',
          message: { id: message?.id, type: 'human', createdAt: 5_000 },
          snippet: { text: 'a walrus', highlights: [[2, 8]] },
          score: expect.any(Number),
        },
      ],
      hasMore: false,
    });
  });

  it('only the beginning of a long message is found', async () => {
    const { search } = test.store;
    const session = await openSession();
    await say(test.store, session, `${'- '.repeat(MAX_TEXT / 2 - 5)} zebra lion`);
    await indexAll(search);
    expect(await find(search, session.owner, 'zebra')).toHaveLength(1);
    expect(await find(search, session.owner, 'lion')).toEqual([]);
  });

  it('a pass ends after 100,000 characters, or 128 texts', async () => {
    const { search } = test.store;
    const session = await openSession();
    await indexAll(search);
    const long = `zebra ${'- '.repeat(25_000)}`;
    for (let i = 0; i < 3; i += 1) await say(test.store, session, long);
    expect(await search.indexPass()).toBe(true);
    expect(await find(search, session.owner, 'zebra')).toHaveLength(2);
    expect(await search.indexPass()).toBe(false);
    expect(await find(search, session.owner, 'zebra')).toHaveLength(3);
    for (let i = 0; i < 129; i += 1) await say(test.store, session, `gnu ${i}`);
    const passed = vi.spyOn(search.index, 'put');
    expect(await search.indexPass()).toBe(true);
    expect(await search.indexPass()).toBe(false);
    expect(passed.mock.calls.map(([, entries]) => entries.length)).toEqual([128, 1]);
    passed.mockRestore();
  });

  it('SearchStore.put indexes texts that are in no queue', async () => {
    const { search } = test.store;
    const owner = newOwner();
    const entry = { owner, source: 'note', id: 'n1', scope: '', createdAt: 0, parts: ['zebra'] };
    await search.put([entry]);
    const query = parseQuery('zebra');
    const request = { sources: ['note'], query, limit: 10 };
    expect(await search.index.find({ ...request, owner })).toMatchObject([{ id: 'n1', part: 0 }]);
    expect(await search.index.find({ ...request, owner: newOwner() })).toEqual([]);
    // It is not a message.
    expect(await find(search, owner, 'zebra')).toEqual([]);
  });

  it('a lost index gets the sessions of all users again, and only what is stored of them', async () => {
    const session = await openSession('Open heron');
    await say(test.store, session, 'a heron');
    await say(test.store, session, '');
    const other = await copySession(test.store, newOwner(), session);
    await say(test.store, other, 'a puffin');
    await indexAll(test.store.search);
    await test.store.search.close();
    for (const end of ['', '-wal', '-shm'])
      rmSync(join(test.options.dataDir, `search.db${end}`), { force: true });
    const { search } = await test.another();
    const put = vi.spyOn(search.index, 'put');
    expect(await indexAll(search)).toBeGreaterThan(1);
    const parts = put.mock.calls.flatMap(([, entries]) => entries.map((entry) => entry.parts));
    expect(parts).not.toContainEqual(['']);
    expect(await find(search, session.owner, 'heron')).toEqual(['Open heron', 'a heron']);
    expect(await find(search, session.owner, 'puffin')).toEqual([]);
    expect(await find(search, other.owner, 'heron')).toEqual(['Open heron']);
    expect(await find(search, other.owner, 'puffin')).toEqual(['a puffin']);
    expect(await search.indexPass()).toBe(false);
  });

  it('a deleted session leaves the index, and no text of other sessions and users is indexed again', async () => {
    const { search, sessions } = await test.another();
    const deleted = await openSession('Old ibis');
    const foreign = await copySession(test.store, newOwner(), deleted);
    const kept = await openSession('New ibis', deleted.owner);
    for (const session of [deleted, kept, foreign]) await say(test.store, session, 'an ibis');
    await indexAll(search);
    await sessions.delete(deleted);
    const put = vi.spyOn(search.index, 'put');
    await indexAll(search);
    const indexed = put.mock.calls.flatMap(([, entries]) => entries);
    for (const { owner, id } of indexed)
      expect({ owner, id }).toEqual({ owner: deleted.owner, id: deleted.sessionId });
    expect(await find(search, deleted.owner, 'ibis')).toEqual(['New ibis', 'an ibis']);
    expect(await find(search, foreign.owner, 'ibis')).toEqual(['Old ibis', 'an ibis']);
  });
});

describe('a source of a plugin in SearchStore', () => {
  let test: TestDatabase;
  let database: Database;
  let opened: SearchStore[];
  /** The texts by owner and id. */
  let texts: Map<string, string>;
  const [ann, bob] = ['did:key:zAnn', 'did:key:zBob'];
  const notes: SearchSource = {
    name: 'note',
    load: async (_, { owner, id }) => {
      const text = texts.get(`${owner} ${id}`);
      return text === undefined ? undefined : { scope: 'notes', createdAt: 1, parts: [text] };
    },
    queueAll: async (tables) => {
      for (const key of texts.keys()) await queueNote(tables, key);
    },
  };

  beforeEach(async () => {
    test = await createTestDatabase('sqlite');
    database = await openDatabase(test.options);
    opened = [];
    texts = new Map();
  });
  afterEach(async () => {
    for (const search of opened) await search.close();
    await database.close();
    await test.drop();
  });

  const queueNote = (tables: Kysely<Schema>, key: string) => {
    const [owner = '', id = ''] = key.split(' ');
    return queueForSearch(tables, { owner, id, source: 'note' });
  };

  async function change(key: string, text: string | undefined): Promise<void> {
    if (text === undefined) texts.delete(key);
    else texts.set(key, text);
    await database.write((tables) => queueNote(tables, key));
  }

  function openSearch(sources = [notes]): SearchStore {
    const context = { database, clock: () => 0, newId: () => 'id' };
    const search = new SearchStore(context, test.options.dataDir, sources);
    opened.push(search);
    return search;
  }

  const findNotes = async ({ index }: SearchStore, owner: string, scope?: string) => {
    const query = parseQuery('zebra');
    const hits = await index.find({ owner, scope, sources: ['note'], query, limit: 10 });
    return hits.map(({ id }) => id).sort();
  };

  const readQueue = () =>
    database.tables.selectFrom('search_queue').select(['owner', 'id', 'version']).execute();

  it('is indexed when it changes, and removed when it does not exist any more', async () => {
    const search = openSearch();
    await change(`${ann} n1`, 'zebra');
    await change(`${ann} n2`, 'zebra');
    await change(`${bob} n1`, 'zebra');
    await indexAll(search);
    expect(await findNotes(search, ann)).toEqual(['n1', 'n2']);
    expect(await findNotes(search, ann, 'notes')).toEqual(['n1', 'n2']);
    await change(`${ann} n1`, undefined);
    await change(`${ann} n2`, 'lion');
    await indexAll(search);
    expect(await findNotes(search, ann)).toEqual([]);
    expect(await findNotes(search, bob)).toEqual(['n1']);
    expect(await readQueue()).toEqual([]);
  });

  it('is in the queue once, with a version for each change', async () => {
    await change(`${ann} n1`, 'zebra');
    await change(`${ann} n1`, 'lion');
    await change(`${bob} n1`, 'zebra');
    expect(await readQueue()).toEqual([
      { owner: ann, id: 'n1', version: 2 },
      { owner: bob, id: 'n1', version: 1 },
    ]);
  });

  it('is queued as a whole when the index is new', async () => {
    texts.set(`${ann} n1`, 'zebra').set(`${bob} n2`, 'zebra');
    // Not the generation of the index.
    await database.write((tables) =>
      tables.insertInto('database_info').values({ key: 'a fact', value: 'other' }).execute(),
    );
    const search = openSearch();
    expect(await search.indexPass()).toBe(false);
    expect(search.index.isMissing()).toBe(true);
    // A search opens the index.
    expect(await find(search, ann, 'zebra')).toEqual([]);
    await indexAll(search);
    expect(await findNotes(search, ann)).toEqual(['n1']);
    expect(await findNotes(search, bob)).toEqual(['n2']);
    const queueAll = vi.spyOn(notes, 'queueAll');
    expect(await find(openSearch(), ann, 'zebra')).toEqual([]);
    expect(queueAll).not.toHaveBeenCalled();
    queueAll.mockRestore();
  });

  it('leaves the queue without a text if its plugin is gone', async () => {
    await change(`${ann} n1`, 'zebra');
    const search = openSearch([]);
    await indexAll(search);
    expect(await findNotes(search, ann)).toEqual([]);
    expect(await readQueue()).toEqual([]);
  });

  it('is indexed again if it changes during a pass, and stays queued if the pass fails', async () => {
    const search = openSearch();
    await change(`${ann} n1`, 'lion');
    const put = search.index.put.bind(search.index);
    const spy = vi.spyOn(search.index, 'put');
    spy.mockImplementationOnce(async () => {
      throw new Error('full');
    });
    await expect(search.indexPass()).rejects.toThrow('full');
    expect(await readQueue()).toHaveLength(1);
    spy.mockImplementationOnce(async (...entries) => {
      await put(...entries);
      await change(`${ann} n1`, 'zebra');
    });
    await search.indexPass();
    expect(await readQueue()).toMatchObject([{ owner: ann, id: 'n1' }]);
    await indexAll(search);
    expect(await findNotes(search, ann)).toEqual(['n1']);
  });

  it('a database of an older version is indexed although nothing is queued', async () => {
    await database.write(async (tables) => {
      const numbers = { last_seq: 0, last_turn: 0, active_branch: 0, last_branch: 0 };
      const times = { created_at: 1, last_updated_at: 1 };
      const oracle = { oracle_did: oracleDid, oracle_name: null, oracle_entity_did: null };
      const ids = { room_id: 'room', active_message_id: null, previous_message_id: null };
      const row = { id: 's1', owner: ann, title: 'Old zebra' };
      await tables
        .insertInto('sessions')
        .values({ ...row, ...numbers, ...times, ...oracle, ...ids })
        .execute();
      await tables.deleteFrom('search_queue').execute();
    });
    const search = openSearch();
    expect(await search.indexPass()).toBe(true);
    await indexAll(search);
    expect(await find(search, ann, 'zebra')).toEqual(['Old zebra']);
  });
});

describe('startIndexing', () => {
  const test = useStore('sqlite');
  afterEach(() => vi.restoreAllMocks());

  it('waits shortly while there is more to index, else a second, and longer after a failure', async () => {
    const pass = vi.spyOn(test.store.search, 'indexPass');
    pass.mockResolvedValueOnce(true).mockResolvedValueOnce(false);
    pass.mockRejectedValueOnce(new Error('full')).mockResolvedValueOnce(false);
    const delays = replaceSleep(async (signal) => {
      if (delays.length >= 4) await waitForAbort(signal);
    });
    const warn = vi.fn();
    const stop = startIndexing(test.store.search, { warn });
    await vi.waitFor(() => expect(delays).toHaveLength(4));
    await stop();
    expect(delays).toEqual([20, 1_000, 30_000, 1_000]);
    expect(pass).toHaveBeenCalledTimes(4);
    expect(warn.mock.calls).toEqual([[{ reason: 'Error: full' }, expect.any(String)]]);
  });

  it('stops at once while it waits, and after the pass that it is in', async () => {
    const pass = vi.spyOn(test.store.search, 'indexPass').mockResolvedValue(false);
    await startIndexing(test.store.search, { warn: vi.fn() })();
    expect(pass).toHaveBeenCalledOnce();
    const { promise, reject } = Promise.withResolvers<boolean>();
    pass.mockReturnValueOnce(promise);
    const warn = vi.fn();
    const stopped = startIndexing(test.store.search, { warn })();
    // Since the store is closed meanwhile, the pass may fail.
    reject(new Error('closed'));
    await stopped;
    expect(warn).not.toHaveBeenCalled();
    expect(pass).toHaveBeenCalledTimes(2);
  });
});

describe.each(engines)('SearchStore.indexPass on %s', (engine) => {
  it('leaves no words of a user who is erased while they are read', async () => {
    const test = await createTestDatabase(engine);
    const database = await openDatabase(test.options);
    const owner = newOwner();
    const note: SearchSource = {
      name: 'note',
      load: async () => {
        // What DELETE /me does at another host.
        await database.write((tables) =>
          tables.deleteFrom('search_queue').where('owner', '=', owner).execute(),
        );
        return { scope: 'notes', createdAt: 1, parts: ['zebra'] };
      },
      queueAll: async () => undefined,
    };
    const context = { database, clock: () => 0, newId: () => 'id' };
    const search = new SearchStore(context, test.options.dataDir, [note]);
    onTestFinished(async () => {
      await search.close();
      await database.close();
      await test.drop();
    });
    await database.write((tables) => queueForSearch(tables, { owner, source: 'note', id: '1' }));
    await indexAll(search);
    const query = parseQuery('zebra');
    expect(await search.index.find({ owner, sources: ['note'], query, limit: 10 })).toEqual([]);
  });
});
