import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { defineTable, text } from '@sibyl/plugin-kit/tables';
import { describe, expect, it, vi } from 'vitest';
import { newOwner, useStore } from '../../test/support/test-database.js';
import { SessionStates } from './plugin-stores.js';

const plugin = 'notes';
const test = useStore('sqlite');

async function createScope(owner = newOwner()) {
  const { sessionId } = await test.store.sessions.create({ owner, oracleDid: 'did:o' });
  return { owner, sessionId, plugin };
}

function openFile(): DatabaseSync {
  return new DatabaseSync(join(test.options.dataDir, 'sibyl.db'), { timeout: 5_000 });
}

describe('the limits of what a plugin stores', () => {
  it('a state may have 1 MiB as JSON', async () => {
    const state = test.store.sessionState.of(await createScope());
    const largest = 'x'.repeat(1024 * 1024 - 2);
    await state.set('key', largest);
    expect(await state.get('key')).toBe(largest);
    await expect(async () => state.set('key', `${largest}x`)).rejects.toThrow(
      'The state key is longer than 1048576 characters',
    );
    expect(await state.get('key')).toBe(largest);
  });

  it('a secret may have 16,384 characters', async () => {
    const secrets = test.store.secrets.of({ owner: newOwner(), plugin });
    const largest = 'x'.repeat(16_384);
    await secrets.set('token', largest);
    await expect(secrets.set('token', `${largest}x`)).rejects.toThrow(
      'The secret token is longer than 16384 characters',
    );
    expect(await secrets.get('token')).toBe(largest);
  });

  it('a file that is too large is refused as such, and nothing of it is kept', async () => {
    const mediaType = 'text/plain';
    const owner = newOwner();
    const blobs = test.store.blobs.of({ owner, plugin });
    const tooLarge = new Uint8Array(25 * 1024 * 1024 + 1);
    await expect(blobs.put({ mediaType, data: tooLarge })).rejects.toMatchObject({
      code: 'body_too_large',
    });
    const file = openFile();
    const insert = file.prepare(
      'insert into blobs (id, owner, plugin, media_type, size, data, created_at) values (?, ?, ?, ?, ?, ?, 1)',
    );
    // As if files of nearly 200 MB were stored, and more of other users and plugins.
    const nearly = 200 * 1024 * 1024 - 3;
    insert.run('a', owner, plugin, mediaType, nearly, new Uint8Array(1));
    insert.run('b', owner, 'other', mediaType, nearly, new Uint8Array(1));
    insert.run('c', newOwner(), plugin, mediaType, nearly, new Uint8Array(1));
    file.close();
    await expect(blobs.put({ mediaType, data: new Uint8Array(4) })).rejects.toMatchObject({
      code: 'body_too_large',
    });
    const id = await blobs.put({ mediaType, data: new Uint8Array(3) });
    expect(await blobs.get(id)).toEqual({ mediaType, data: new Uint8Array(3) });
    await expect(blobs.put({ mediaType, data: new Uint8Array(1) })).rejects.toThrow(
      /^200 MB of files/,
    );
  });
});

describe('SecretStore', () => {
  it('does not open a secret that was moved to another name, plugin or user', async () => {
    const owner = newOwner();
    const thief = newOwner();
    await test.store.secrets.of({ owner, plugin }).set('token', 'mine');
    const moves = [
      { owner, plugin, name: 'moved' },
      { owner, plugin: 'other', name: 'token' },
      { owner: thief, plugin, name: 'token' },
    ];
    const file = openFile();
    const move = file.prepare(
      `insert into secrets (owner, plugin, name, ciphertext)
        select ?, ?, ?, ciphertext from secrets where owner = '${owner}' and name = 'token' limit 1`,
    );
    for (const to of moves) move.run(to.owner, to.plugin, to.name);
    file.close();
    for (const { name, ...scope } of moves)
      await expect(test.store.secrets.of(scope).get(name)).rejects.toMatchObject({
        code: 'key_changed',
      });
    expect(await test.store.secrets.of({ owner, plugin }).get('token')).toBe('mine');
  });
});

describe('the states of a session during a turn', () => {
  /** States whose rows are read once, while each alone is 'stored'. */
  function open(rows: readonly { plugin: string; key: string; value: string | null }[]) {
    const read = vi.fn(async () => rows);
    const stored = { get: vi.fn(async () => 'stored'), set: vi.fn(async () => undefined) };
    return { states: new SessionStates(() => stored, read), read, stored };
  }

  it('are read once for all plugins and keys', async () => {
    const { states, read, stored } = open([
      { plugin: 'a', key: 'k', value: '1' },
      { plugin: 'b', key: 'k', value: '2' },
      { plugin: 'b', key: 'l', value: 'null' },
    ]);
    const found = await Promise.all([
      states.of('a').get('k'),
      states.of('b').get('k'),
      states.of('b').get('l'),
      states.of('a').get('l'),
    ]);
    expect(found).toEqual([1, 2, null, undefined]);
    expect(read).toHaveBeenCalledOnce();
    expect(stored.get).not.toHaveBeenCalled();
  });

  it('are read alone if they are large, or if there are many', async () => {
    const few = open([{ plugin: 'a', key: 'large', value: null }]);
    expect(await few.states.of('a').get('large')).toBe('stored');
    const row = (i: number) => ({ plugin: 'a', key: `k${i}`, value: String(i) });
    const many = open(Array.from({ length: 64 }, (_, i) => row(i)));
    expect(await many.states.of('a').get('k63')).toBe(63);
    expect(await many.states.of('a').get('k64')).toBe('stored');
    const fewer = open(Array.from({ length: 63 }, (_, i) => row(i)));
    expect(await fewer.states.of('a').get('k64')).toBeUndefined();
  });

  it('are read again after a change, also if it failed, and after a failure', async () => {
    const { states, read, stored } = open([]);
    const state = states.of('a');
    await state.get('k');
    await state.set('k', 1);
    await state.get('k');
    expect(read).toHaveBeenCalledTimes(2);
    stored.set.mockRejectedValueOnce(new Error('full'));
    await expect(state.set('k', 2)).rejects.toThrow('full');
    read.mockRejectedValueOnce(new Error('lost'));
    await expect(state.get('k')).rejects.toThrow('lost');
    expect(await state.get('k')).toBeUndefined();
    expect(read).toHaveBeenCalledTimes(4);
  });

  it('have up to 16 KiB, and 64 of them are read at once', async () => {
    const scope = await createScope();
    const { sessionState } = test.store;
    const stored = sessionState.of(scope);
    const small = 'é'.repeat(8 * 1024 - 1);
    await stored.set('small', small);
    await stored.set('large', `${small}x`);
    const turn = sessionState.ofTurn(scope).of(plugin);
    expect(await turn.get('small')).toBe(small);
    await stored.set('small', 'changed');
    await stored.set('large', 'changed');
    expect(await turn.get('small')).toBe(small);
    expect(await turn.get('large')).toBe('changed');
  });
});

describe('PluginTables', () => {
  const pages = defineTable(
    'my_notes_pages',
    { owner: text(), id: text() },
    { key: ['owner', 'id'] },
  );
  const request = { plugin: 'my-notes', tables: [pages], plugins: ['my-notes'] };

  function listTables(): string[] {
    const file = openFile();
    const rows = file.prepare("select name from sqlite_master where type = 'table'").all();
    file.close();
    return rows.map(({ name }) => String(name));
  }

  it('a plugin that defines no tables has none, not even for itself', async () => {
    const before = listTables();
    await test.store.pluginTables.open({ plugin: 'empty', plugins: ['empty'] });
    expect(listTables()).toEqual(before);
  });

  it('migrations are remembered in tables of the plugin', async () => {
    await test.store.pluginTables.open(request);
    expect(listTables()).toEqual(
      expect.arrayContaining(['my_notes_pages', 'my_notes_migration', 'my_notes_migration_lock']),
    );
  });

  it('each unit of work sees only the tables of the plugin, and is undone if it fails', async () => {
    const { tables, write, writeFor, read } = await test.store.pluginTables.open(request);
    const owner = newOwner();
    await writeFor(owner, (handle) =>
      handle.insertInto('my_notes_pages').values({ owner, id: 'kept' }).execute(),
    );
    for (const run of [write, (unit: Parameters<typeof write>[0]) => writeFor(owner, unit)]) {
      const failing = run(async (handle) => {
        await handle.insertInto('my_notes_pages').values({ owner, id: 'lost' }).execute();
        throw new Error('undone');
      });
      await expect(failing).rejects.toThrow('undone');
    }
    const rows = await read((handle) => handle.selectFrom('my_notes_pages').select('id').execute());
    expect(rows).toEqual([{ id: 'kept' }]);
    expect(await tables.selectFrom('my_notes_pages').select('id').execute()).toEqual(rows);
    const foreign = writeFor(owner, (handle) => handle.deleteFrom('secrets').execute());
    await expect(foreign).rejects.toThrow(/is not the plugin my-notes's/);
  });
});
