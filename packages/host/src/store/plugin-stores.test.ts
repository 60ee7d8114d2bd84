import { defineTable, text } from '@sibyl/plugin-kit/tables';
import { sql } from 'kysely';
import { describe, expect, it } from 'vitest';
import {
  createTestDatabase,
  engines,
  newOwner,
  useStore,
} from '../../test/support/test-database.js';
import type { PluginTablesRequest } from './plugin-stores.js';
import { openStore } from './store.js';

const oracleDid = 'did:key:zOracle';
const plugin = 'notes';

describe.each(engines)('SessionStateStore on %s', (engine) => {
  const test = useStore(engine);

  async function createScope(owner = newOwner()) {
    const { sessionId } = await test.store.sessions.create({ owner, oracleDid });
    return { owner, sessionId, plugin };
  }

  it('stores JSON values, and deletes a key that is set to undefined', async () => {
    const state = test.store.sessionState.of(await createScope());
    expect(await state.get('key')).toBeUndefined();
    for (const value of [{ a: [1, null, 'x\u0000'] }, false, 0, null]) {
      await state.set('key', value);
      expect(await state.get('key')).toEqual(value);
    }
    await state.set('key', undefined);
    expect(await state.get('key')).toBeUndefined();
  });

  it('separates users, sessions, plugins and keys', async () => {
    const scope = await createScope();
    const { sessionState } = test.store;
    await sessionState.of(scope).set('key', 1);
    const elsewhere = [
      { ...scope, owner: newOwner() },
      { ...scope, plugin: 'other' },
      await createScope(scope.owner),
    ];
    for (const other of elsewhere) {
      expect(await sessionState.of(other).get('key')).toBeUndefined();
      expect(await sessionState.ofTurn(other).of(other.plugin).get('key')).toBeUndefined();
      await sessionState.of(other).set('key', undefined);
    }
    expect(await sessionState.of(scope).get('other')).toBeUndefined();
    await sessionState.of(scope).set('other', undefined);
    expect(await sessionState.of(scope).get('key')).toBe(1);
  });

  it('ofTurn reads the state of all plugins once, and what the turn changes again', async () => {
    const scope = await createScope();
    const { sessionState } = test.store;
    const stored = (name: string) => sessionState.of({ ...scope, plugin: name });
    const long = 'x'.repeat(20_000);
    await stored('a').set('key', { n: 1 });
    await stored('b').set('key', long);
    const turn = sessionState.ofTurn(scope);
    expect(await turn.of('a').get('key')).toEqual({ n: 1 });
    await stored('a').set('key', 'from elsewhere');
    await stored('b').set('key', `${long}!`);
    expect(await turn.of('a').get('key')).toEqual({ n: 1 });
    expect(await turn.of('b').get('key')).toBe(`${long}!`);
    expect(await turn.of('c').get('key')).toBeUndefined();
    await turn.of('a').set('key', 2);
    await turn.of('c').set('key', 3);
    expect(await turn.of('a').get('key')).toBe(2);
    expect(await turn.of('c').get('key')).toBe(3);
    await turn.of('a').set('key', undefined);
    expect(await turn.of('a').get('key')).toBeUndefined();
  });

  it('ofTurn finds every key of a session with many', async () => {
    const scope = await createScope();
    const keys = Array.from({ length: 70 }, (_, i) => `key ${i}`);
    const { sessionState } = test.store;
    await Promise.all(keys.map((key) => sessionState.of(scope).set(key, key)));
    const state = sessionState.ofTurn(scope).of(plugin);
    expect(await Promise.all(keys.map((key) => state.get(key)))).toEqual(keys);
    expect(await state.get('missing')).toBeUndefined();
  });

  it('rejects a session of another user', async () => {
    const scope = await createScope();
    const { owner } = await createScope();
    const theirs = test.store.sessionState.of({ ...scope, owner });
    await expect(theirs.set('key', 1)).rejects.toMatchObject({ code: 'session_not_found' });
  });

  it('is deleted with its session', async () => {
    const scope = await createScope();
    const state = test.store.sessionState.of(scope);
    await state.set('key', 1);
    await test.store.sessions.delete(scope);
    expect(await state.get('key')).toBeUndefined();
    await expect(state.set('key', 2)).rejects.toMatchObject({ code: 'session_not_found' });
  });

  it('rejects values that are too long or not JSON', async () => {
    const state = test.store.sessionState.of(await createScope());
    await expect(async () => state.set('key', 'x'.repeat(1_100_000))).rejects.toThrow(
      /keep it in a blob/,
    );
    await expect(async () => state.set('key', () => 1)).rejects.toThrow(/JSON/);
  });
});

describe.each(engines)('SecretStore on %s', (engine) => {
  const test = useStore(engine);

  it('returns a secret until it is removed', async () => {
    const secrets = test.store.secrets.of({ owner: newOwner(), plugin });
    expect(await secrets.get('token')).toBeUndefined();
    await secrets.set('token', 'first');
    await secrets.set('token', 'second');
    expect(await secrets.get('token')).toBe('second');
    await secrets.set('token', undefined);
    expect(await secrets.get('token')).toBeUndefined();
  });

  it('separates users, plugins and names', async () => {
    const owner = newOwner();
    const secrets = test.store.secrets.of({ owner, plugin });
    await secrets.set('key', 'another');
    await secrets.set('token', 'mine');
    for (const other of [
      { owner: newOwner(), plugin },
      { owner, plugin: 'other' },
    ]) {
      const theirs = test.store.secrets.of(other);
      expect(await theirs.get('token')).toBeUndefined();
      await theirs.set('token', undefined);
    }
    expect(await secrets.get('token')).toBe('mine');
    await secrets.set('key', undefined);
    expect(await secrets.get('token')).toBe('mine');
  });

  it('cannot decrypt with another key', async () => {
    const scope = { owner: newOwner(), plugin };
    await test.store.secrets.of(scope).set('token', 'mine');
    const stranger = await test.another({ secretKey: new Uint8Array(32).fill(8) });
    await expect(stranger.secrets.of(scope).get('token')).rejects.toMatchObject({
      code: 'key_changed',
      cause: { message: expect.stringMatching(/^token: .*is the oracle's key the same\?$/) },
    });
  });
});

describe.each(engines)('BlobStore on %s', (engine) => {
  const test = useStore(engine);
  const data = new Uint8Array([0, 1, 254, 255]);
  const mediaType = 'application/octet-stream';

  it('returns the same bytes until they are deleted', async () => {
    const blobs = test.store.blobs.of({ owner: newOwner(), plugin });
    const id = await blobs.put({ mediaType, data });
    expect(await blobs.get(id)).toEqual({ mediaType, data });
    await blobs.delete(id);
    expect(await blobs.get(id)).toBeUndefined();
  });

  it('separates users, plugins and ids', async () => {
    const owner = newOwner();
    const blobs = test.store.blobs.of({ owner, plugin });
    const another = await blobs.put({ mediaType, data: new Uint8Array([1]) });
    const id = await blobs.put({ mediaType, data });
    for (const other of [
      { owner: newOwner(), plugin },
      { owner, plugin: 'other' },
    ]) {
      const theirs = test.store.blobs.of(other);
      expect(await theirs.get(id)).toBeUndefined();
      await theirs.delete(id);
    }
    expect(await blobs.get(id)).toEqual({ mediaType, data });
    await blobs.delete(another);
    expect(await blobs.get(id)).toEqual({ mediaType, data });
  });

  it('limits the size of one blob and of all together', async () => {
    const owner = newOwner();
    const blobs = test.store.blobs.of({ owner, plugin });
    const large = new Uint8Array(25 * 1024 * 1024);
    const tooLarge = blobs.put({ mediaType, data: new Uint8Array(large.length + 1) });
    await expect(tooLarge).rejects.toThrow(/at most 25 MB/);
    const put = await Promise.allSettled(
      Array.from({ length: 9 }, () => blobs.put({ mediaType, data: large })),
    );
    expect(put.filter(({ status }) => status === 'fulfilled')).toHaveLength(8);
    await expect(blobs.put({ mediaType, data })).rejects.toThrow(/200 MB of files/);
    const ofOther = test.store.blobs.of({ owner, plugin: 'other' });
    expect(await ofOther.put({ mediaType, data })).toBeDefined();
  });
});

const pages = defineTable(
  'note_book_pages',
  { owner: text(), id: text(), text: text() },
  { key: ['owner', 'id'], onErase: { keeps: 'rows', reason: 'a ledger' } },
);
const colored = defineTable(
  'note_book_pages',
  { ...pages.columns, color: text().optional() },
  { key: ['owner', 'id'] },
);
const owner = 'did:key:zNotes';
const request = { plugin: 'note-book', tables: [pages], plugins: ['note', 'note-book'] };

describe.each(engines)('PluginTables on %s', (engine) => {
  const test = useStore(engine);
  const open = (more: Partial<PluginTablesRequest> = {}) =>
    test.store.pluginTables.open({ ...request, ...more });

  it('creates the tables once, in one of several processes', async () => {
    const second = await test.another();
    const [database, same] = await Promise.all([open(), second.pluginTables.open(request)]);
    expect(database.engine).toBe(engine);
    await database.write((tables) =>
      tables.insertInto('note_book_pages').values({ owner, id: '1', text: 'kept' }).execute(),
    );
    await open();
    expect(await same.tables.selectFrom('note_book_pages').selectAll().execute()).toEqual([
      { owner, id: '1', text: 'kept' },
    ]);
  });

  it('allows joins, aliases and common table expressions', async () => {
    const { tables, write } = await open();
    await write((handle) =>
      handle.insertInto('note_book_pages').values({ owner, id: '2', text: 'joined' }).execute(),
    );
    const rows = await tables
      .with('short', (handle) => handle.selectFrom('note_book_pages').select('id'))
      .selectFrom('short as s')
      .innerJoin('note_book_pages as p', 'p.id', 's.id')
      .select(['p.text', 's.id'])
      .where('p.id', '=', '2')
      .execute();
    expect(rows).toEqual([{ id: '2', text: 'joined' }]);
  });

  it('runs migrations that are added later on tables of an earlier version only', async () => {
    await open();
    const later = {
      tables: [colored],
      migrations: {
        '0002-color': async (tables, on) => {
          expect(on).toBe(engine);
          await tables.schema.alterTable('note_book_pages').addColumn('color', 'text').execute();
        },
      },
    } satisfies Partial<PluginTablesRequest>;
    const { tables } = await open(later);
    await tables.selectFrom('note_book_pages').select('color').execute();
    await expect(open()).rejects.toThrow(/written by a newer plugin note-book.*0002-color/);
    const other = await createTestDatabase(engine);
    const store = await openStore(other.options);
    const created = await store.pluginTables.open({ ...request, ...later });
    await created.tables.selectFrom('note_book_pages').select('color').execute();
    await store.close();
    await other.drop();
  });

  it('allows a plugin to query only its own tables', async () => {
    const { tables, write, read } = await open({ plugin: 'note', tables: [] });
    const foreign = /is not the plugin note's: the names of its tables begin with note_/;
    const attempts = [
      () => tables.selectFrom('sessions').selectAll().execute(),
      () => tables.selectFrom('note_book_pages').selectAll().execute(),
      () =>
        tables.selectFrom('note_x as n').innerJoin('secrets as s', 's.owner', 'n.owner').execute(),
      () => write((handle) => handle.deleteFrom('delegations').execute()),
      () => write((handle) => handle.schema.dropTable('messages').execute()),
      () => read((handle) => handle.selectFrom('runs').selectAll().execute()),
      () => sql`select * from ${sql.table('secrets')}`.execute(tables),
      () => tables.selectFrom('main.sessions').selectAll().execute(),
    ];
    for (const attempt of attempts) await expect(attempt).rejects.toThrow(foreign);
    await expect(open({ plugin: 'note', tables: [pages] })).rejects.toThrow(foreign);
  });
});
