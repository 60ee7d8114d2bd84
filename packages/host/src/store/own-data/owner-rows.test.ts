import { createTables } from '@sibyl/plugin-kit/host';
import { type AnyTable, defineTable, integer, text } from '@sibyl/plugin-kit/tables';
import { type KyselyPlugin, sql } from 'kysely';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { insertRows } from '../../../test/support/stored-rows.js';
import { createTestDatabase } from '../../../test/support/test-database.js';
import type { Database } from '../database.js';
import { createVault } from '../encryption.js';
import { openDatabase } from '../open-database.js';
import { ErasureRequests } from '../shared-jobs.js';
import { type OwnedTable, OwnerRows, type StoredRow } from './owner-rows.js';
import { keepRules } from './table-catalog.js';

const OWNER = 'did:key:zOwner';
const OTHER = 'did:key:zOther';
const PSEUDONYM = 'erased:1';
const PAGE_BYTES = 512 * 1024;

const vault = createVault(new Uint8Array(32).fill(7));
let database: Database;
let rows: OwnerRows;

beforeEach(async () => {
  const { options, drop } = await createTestDatabase('sqlite');
  database = await openDatabase(options);
  rows = createRows(database);
  onTestFinished(async () => {
    await database.close();
    await drop();
  });
});

const createRows = (used: Database) =>
  new OwnerRows({ database: used, clock: Date.now, newId: () => crypto.randomUUID() }, vault);

const execute = (statement: string) =>
  database.write((tables) => sql.raw(statement).execute(tables));

async function createPluginTable(definition: AnyTable): Promise<void> {
  await database.write((tables) => createTables(tables, [definition], 'sqlite'));
  await keepRules(database, [definition]);
}

const insert = (table: string, ...rows: readonly StoredRow[]) =>
  insertRows(database, table, ...rows);

async function count(table: string, owner: string, column = 'owner'): Promise<number> {
  const found = await sql`select 1 from ${sql.table(table)}
    where ${sql.ref(column)} = ${owner}`.execute(database.tables);
  return found.rows.length;
}

async function findTable(name: string): Promise<OwnedTable> {
  const table = (await rows.tables()).find((known) => known.name === name);
  if (!table) throw new Error(`no table ${name}`);
  return table;
}

async function readPages(name: string, owner = OWNER): Promise<(readonly StoredRow[])[]> {
  const pages: (readonly StoredRow[])[] = [];
  for await (const page of rows.pages(await findTable(name), owner)) pages.push(page);
  return pages;
}

const range = (length: number) => Array.from({ length }, (_, i) => i);
const toId = (i: number) => String(i).padStart(5, '0');

const createRoom = (owner: string, id: string): StoredRow => ({
  ...{ owner, id, oracle_did: `did:${id}`, created_at: 1 },
});

const createSession = (owner: string): StoredRow => ({
  ...{ owner, id: 'session', title: 't', created_at: 1, last_updated_at: 1, last_turn: 1 },
  ...{ active_branch: 0, last_branch: 0 },
  ...{ oracle_did: 'did:o', room_id: 'room', last_seq: 1 },
});

const createMessage = (owner: string, id: string, seq: number): StoredRow => ({
  ...{ owner, id, session_id: 'session', turn: 1, seq, type: 'human', content: 'hi' },
  ...{ branch: 0, request_id: 'r', is_complete: 1, created_at: 1 },
});

const createBlob = (owner: string, id: string, data: Uint8Array): StoredRow => ({
  ...{ owner, id, plugin: 'p', media_type: 'm', size: data.length, data, created_at: 1 },
});

const createApproval = (owner: string, id: string, sealed: StoredRow = {}): StoredRow => ({
  ...{ owner, id, session_id: 's', run_id: 'r', call: '{}', call_id: 'c', tool: 't', plugin: 'p' },
  ...{ args_hash: 'h', required_by: 'user', request: 'x', created_at: 1, expires_at: 2 },
  ...sealed,
});

describe('OwnerRows.tables', () => {
  it('lists the tables with an owner, parents first, also those of plugins that are not loaded', async () => {
    await execute('create table notes_pages (id text primary key, owner text)');
    const tables = await rows.tables();
    const names = tables.map(({ name }) => name);
    expect(names).toEqual(expect.arrayContaining(['sessions', 'messages', 'notes_pages']));
    expect(names.indexOf('sessions')).toBeLessThan(names.indexOf('messages'));
    for (const name of ['model_usage', 'hosts', 'database_info', 'kysely_migration'])
      expect(names).not.toContain(name);
    expect((await findTable('callers')).ownerColumn).toBe('did');
  });
});

describe('OwnerRows.erase', () => {
  it('deletes and counts all rows of one user, and leaves rows of others with the same ids', async () => {
    await execute('create table notes_lines (owner text, line text)');
    for (const owner of [OWNER, OTHER]) {
      await insert('sessions', createSession(owner));
      await insert('messages', createMessage(owner, 'm1', 1), createMessage(owner, 'm2', 2));
      await insert('rooms', createRoom(owner, 'room'));
      await insert('blobs', createBlob(owner, 'blob', new Uint8Array([1])));
      await insert('callers', { did: owner, cid: 'c', created_at: 1 });
      await insert('notes_lines', { owner, line: 'same' }, { owner, line: 'same' });
    }
    // Eight, and six that triggers queue for search: the session and its messages, when they are added and deleted.
    expect(await rows.erase(OWNER, PSEUDONYM)).toEqual({ rows: 14, kept: [] });
    const tables = ['sessions', 'rooms', 'blobs', 'messages', 'notes_lines', 'search_queue'];
    const left = await Promise.all(tables.map((table) => count(table, OWNER)));
    expect(left).toEqual([0, 0, 0, 0, 0, 0]);
    const others = await Promise.all(tables.map((table) => count(table, OTHER)));
    expect(others).toEqual([1, 1, 1, 2, 2, 3]);
    expect(await count('callers', OWNER, 'did')).toBe(0);
    expect(await count('callers', OTHER, 'did')).toBe(1);
  });

  it('keeps signed decisions and what operators must keep, as they are', async () => {
    const ledger = defineTable(
      'notes_ledger',
      { owner: text(), id: text() },
      { key: ['owner', 'id'], onErase: { keeps: 'rows', reason: 'A ledger' } },
    );
    await createPluginTable(ledger);
    for (const owner of [OWNER, OTHER]) {
      await insert('approvals', createApproval(owner, 'signed', { receipt: 'x' }));
      await insert('approvals', createApproval(owner, 'unsigned'));
      await insert('notes_ledger', { owner, id: 'a' }, { owner, id: 'b' });
      await insert('blocked_users', { owner, created_at: 1 });
      await insert('operator_actions', { owner, id: 'a', action: 'block', created_at: 1 });
    }
    const erased = await rows.erase(OWNER, PSEUDONYM);
    expect(erased.rows).toBe(1);
    expect(erased.kept).toHaveLength(4);
    expect(erased.kept).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ table: 'approvals', rows: 1 }),
        { table: 'notes_ledger', rows: 2, keeps: 'rows', reason: 'A ledger' },
        expect.objectContaining({ table: 'blocked_users', rows: 1 }),
        expect.objectContaining({ table: 'operator_actions', rows: 1 }),
      ]),
    );
    const [approvals = []] = await readPages('approvals');
    expect(approvals.map(({ id }) => id)).toEqual(['signed']);
    expect(await count('approvals', OTHER)).toBe(2);
  });

  it('keeps what must stay used or revoked under a pseudonym', async () => {
    const payments = defineTable(
      'notes_payments',
      { owner: text(), seq: integer() },
      { key: ['owner', 'seq'], onErase: { keeps: 'without owner', reason: 'Payments' } },
    );
    await createPluginTable(payments);
    for (const owner of [OWNER, OTHER]) {
      await insert('revocations', { owner, cid: 'same', expires_at: null });
      await insert('single_use', { owner, cid: `used by ${owner}`, expires_at: 9 });
      await insert('notes_payments', ...range(1100).map((seq) => ({ owner, seq })));
    }
    const { rows: changed, kept } = await rows.erase(OWNER, PSEUDONYM);
    expect(changed).toBe(1102);
    expect(kept).toHaveLength(3);
    const tables = { revocations: 1, single_use: 1, notes_payments: 1100 };
    for (const [table, number] of Object.entries(tables)) {
      expect(kept).toContainEqual(expect.objectContaining({ table, rows: number }));
      expect(await count(table, OWNER)).toBe(0);
      expect(await count(table, PSEUDONYM)).toBe(number);
      expect(await count(table, OTHER)).toBe(number);
    }
  });

  it('deletes few rows at a time, and fewer if they contain files', async () => {
    await insert('rooms', ...range(1201).map((i) => createRoom(OWNER, toId(i))));
    await insert('blobs', ...range(45).map((i) => createBlob(OWNER, toId(i), new Uint8Array([1]))));
    const changes: number[] = [];
    const recorder: KyselyPlugin = {
      transformQuery: ({ node }) => node,
      transformResult: async ({ result }) => {
        if (result.numAffectedRows) changes.push(Number(result.numAffectedRows));
        return result;
      },
    };
    const watched: Database = {
      ...database,
      write: (unit) => database.write((tables) => unit(tables.withPlugin(recorder))),
    };
    expect(await createRows(watched).erase(OWNER, PSEUDONYM)).toEqual({ rows: 1246, kept: [] });
    expect(changes).toEqual([500, 500, 201, 20, 20, 5]);
  });

  it('also deletes what is written while it runs', async () => {
    // Rows of usage_days are deleted before those of rooms.
    await execute(`create trigger charge after delete on rooms begin
      insert into usage_days values (old.owner, 'day', 's', 'm', 1, 1, 1, 1, null); end`);
    await insert('rooms', createRoom(OWNER, 'room'));
    expect(await rows.erase(OWNER, PSEUDONYM)).toEqual({ rows: 2, kept: [] });
    expect(await count('usage_days', OWNER)).toBe(0);
  });

  it('deletes nothing once its request has ended, which another host may have continued', async () => {
    const context = { database, clock: Date.now, newId: () => crypto.randomUUID() };
    const erasures = new ErasureRequests(context);
    const request = await erasures.add(OWNER, 'frozen');
    expect(await erasures.list()).toEqual([request]);
    expect(await erasures.add(OWNER, 'other')).toEqual({ ...request, hostId: 'other' });
    await insert('rooms', createRoom(OWNER, 'before'));
    expect((await rows.erase(OWNER, PSEUDONYM, request)).rows).toBe(1);
    await erasures.end(request);
    await insert('rooms', createRoom(OWNER, 'after'));
    expect((await rows.erase(OWNER, PSEUDONYM, request)).rows).toBe(0);
    expect(await erasures.takeOver(request, 'frozen')).toBe(false);
    const next = await erasures.add(OWNER, 'host');
    expect((await rows.erase(OWNER, PSEUDONYM, request)).rows).toBe(0);
    expect((await rows.erase(OWNER, PSEUDONYM, next)).rows).toBe(1);
  });

  it('stops at a user whose rows are always written again', async () => {
    await execute(`create trigger charge after delete on rooms begin
      insert into usage_days values (old.owner, 'day', 's', 'm', 1, 1, 1, 1, null); end`);
    await execute(`create trigger refund after delete on usage_days begin
      insert into rooms values (old.owner, 'room', 'did:o', 1); end`);
    await insert('rooms', createRoom(OWNER, 'room'));
    await expect(rows.erase(OWNER, PSEUDONYM)).rejects.toThrow(/faster than they are deleted/);
  });
});

describe('OwnerRows.pages', () => {
  it('reads all rows of one user in the order of their key', async () => {
    const ids = range(1203).map(toId);
    await insert('rooms', ...ids.toReversed().map((id) => createRoom(OWNER, id)));
    await insert('rooms', ...ids.map((id) => createRoom(OTHER, id)));
    const pages = await readPages('rooms');
    expect(pages.map((page) => page.length)).toEqual([500, 500, 203]);
    expect(pages.flat()).toEqual(ids.map((id) => createRoom(OWNER, id)));
  });

  it('reads the table of a plugin whose key has no owner, or that has no key', async () => {
    await execute('create table notes_pages (id text primary key, owner text)');
    await execute('create table notes_lines (owner text, line text)');
    for (const owner of [OWNER, OTHER]) {
      await insert('notes_pages', { id: `page of ${owner}`, owner });
      await insert('notes_lines', { owner, line: 'same' }, { owner, line: 'same' });
    }
    expect(await readPages('notes_pages')).toEqual([[{ id: `page of ${OWNER}`, owner: OWNER }]]);
    const line = { owner: OWNER, line: 'same' };
    expect(await readPages('notes_lines')).toEqual([[line, line]]);
  });

  it('reads all rows of a table of a plugin without a key, in pages', async () => {
    await execute('create table notes_lines (owner text, line text, data blob)');
    const lines = range(1_100).map((i) => toId(i % 700));
    const data = new Uint8Array([5]);
    await insert('notes_lines', ...lines.map((line) => ({ owner: OWNER, line, data })));
    const pages = await readPages('notes_lines');
    expect(pages.map((page) => page.length)).toEqual([500, 500, 100]);
    expect(pages.flat().map(({ line }) => line)).toEqual(lines.toSorted());
    expect(pages[0]?.[0]).toEqual({ owner: OWNER, line: toId(0) });
  });

  it('reads all rows of a table that SQLite does not keep in the order of its key', async () => {
    const ids = range(600).map(toId);
    const used = ids.toReversed().map((cid) => ({ cid, owner: OWNER, expires_at: 1 }));
    await insert('single_use', ...used);
    const pages = await readPages('single_use');
    expect(pages.flatMap((page) => page.map(({ cid }) => cid))).toEqual(ids);
  });

  it('has no page for a user without rows', async () => {
    await insert('rooms', createRoom(OTHER, 'room'));
    expect(await readPages('rooms')).toEqual([]);
  });

  const openNotes = () =>
    execute(
      'create table notes_pages (owner text, id text, a text, b text, c integer, primary key (owner, id))',
    );
  /** A row of so many bytes. */
  const createNote = (id: string, bytes: number): StoredRow => {
    const rest = bytes - OWNER.length - id.length - 10;
    return { owner: OWNER, id, a: 'x'.repeat(10), b: 'x'.repeat(rest), c: 123 };
  };

  it('fills a page up to its size', async () => {
    await openNotes();
    const half = PAGE_BYTES / 2;
    await insert('notes_pages', createNote('1', half), createNote('2', half), createNote('3', 99));
    expect((await readPages('notes_pages')).map((page) => page.length)).toEqual([2, 1]);
  });

  it('begins another page for a row that is one byte too large', async () => {
    await openNotes();
    const half = PAGE_BYTES / 2;
    await insert('notes_pages', createNote('1', half), createNote('2', half + 1));
    expect((await readPages('notes_pages')).map((page) => page.length)).toEqual([1, 1]);
  });

  it('reads rows that are larger than a page one by one', async () => {
    await openNotes();
    const large = PAGE_BYTES + 1;
    await insert('notes_pages', createNote('1', large), createNote('2', large));
    await insert('notes_pages', { ...createNote('3', 99), b: null });
    const pages = await readPages('notes_pages');
    expect(pages.map((page) => page.map(({ id }) => id))).toEqual([['1'], ['2'], ['3']]);
  });

  it('counts bytes rather than characters', async () => {
    await openNotes();
    const note = { owner: OWNER, a: '', b: 'é'.repeat(PAGE_BYTES / 3), c: 1 };
    await insert('notes_pages', { ...note, id: '1' }, { ...note, id: '2' });
    expect(await readPages('notes_pages')).toHaveLength(2);
  });

  it('leaves out credentials and binary columns', async () => {
    await insert('secrets', { owner: OWNER, plugin: 'p', name: 'n', ciphertext: 'x' });
    await insert('blobs', createBlob(OWNER, 'blob', new Uint8Array(PAGE_BYTES)));
    await insert('delegations', {
      ...{ owner: OWNER, cid: 'c', audience: 'a', ciphertext: 'x', created_at: 1 },
      ...{ purpose: 'services' },
    });
    await execute(
      'create table notes_pages (owner text, id text primary key, ciphertext text, v tsvector)',
    );
    const note = { owner: OWNER, id: 'n', ciphertext: 'is not secret' };
    await insert('notes_pages', { ...note, v: 'computed' });
    expect(await readPages('secrets')).toEqual([[{ owner: OWNER, plugin: 'p', name: 'n' }]]);
    const [[blob] = [], ...more] = await readPages('blobs');
    expect(blob).toEqual({
      ...{ owner: OWNER, id: 'blob', plugin: 'p', media_type: 'm', size: PAGE_BYTES },
      created_at: 1,
    });
    expect(more).toEqual([]);
    const [[delegation] = []] = await readPages('delegations');
    expect(delegation).toMatchObject({ cid: 'c', audience: 'a' });
    expect(delegation).not.toHaveProperty('ciphertext');
    expect(await readPages('notes_pages')).toEqual([[note]]);
  });

  it('opens what is sealed for this user, and nothing else', async () => {
    const sealed = {
      request: vault.seal('the request', ['approval', OWNER]),
      answer: vault.seal('of another', ['answer', OTHER]),
      receipt: vault.seal('of another kind', ['answer', OWNER]),
    };
    await insert('approvals', createApproval(OWNER, 'one', sealed));
    const request = vault.seal('second', ['approval', OWNER]);
    await insert('approvals', createApproval(OWNER, 'two', { request }));
    expect((await readPages('approvals')).flat()).toEqual([
      {
        ...{ ...createApproval(OWNER, 'one'), decision: null, decided_at: null },
        ...{ request: 'the request', answer: null, receipt: null },
      },
      {
        ...{ ...createApproval(OWNER, 'two'), decision: null, decided_at: null },
        ...{ request: 'second', answer: null, receipt: null },
      },
    ]);
  });

  it('does not open texts in columns and tables that are not sealed', async () => {
    const text = vault.seal('looks sealed', ['approval', OWNER]);
    await insert('approvals', createApproval(OWNER, 'one', { call: text }));
    await insert('rooms', createRoom(OWNER, text));
    expect((await readPages('approvals')).flat()).toMatchObject([{ call: text }]);
    expect((await readPages('rooms')).flat()).toMatchObject([{ id: text }]);
  });
});

describe('OwnerRows.files', () => {
  async function readFiles(name: string, column: string) {
    const files: { readonly key: StoredRow; readonly data: Uint8Array }[] = [];
    for await (const file of rows.files(await findTable(name), OWNER, column)) files.push(file);
    return files;
  }

  it('reads the binary values of one user with their keys', async () => {
    const data = range(3).map((i) => new Uint8Array(PAGE_BYTES - 10).fill(i));
    for (const [i, bytes] of data.entries())
      await insert('blobs', createBlob(OWNER, `b${i}`, bytes));
    await insert('blobs', createBlob(OTHER, 'b0', new Uint8Array([9])));
    const files = await readFiles('blobs', 'data');
    expect(files.map(({ key }) => key)).toEqual(
      range(3).map((i) => ({ owner: OWNER, id: `b${i}` })),
    );
    expect(files.map((file) => [file.data.length, file.data[0]])).toEqual(
      range(3).map((i) => [PAGE_BYTES - 10, i]),
    );
  });

  it('leaves out rows without a binary value', async () => {
    await execute(
      'create table notes_files (owner text, id text, data blob, primary key (owner, id))',
    );
    await insert('notes_files', { owner: OWNER, id: 'none', data: null });
    await insert('notes_files', { owner: OWNER, id: 'some', data: new Uint8Array([5]) });
    expect(await readFiles('notes_files', 'data')).toEqual([
      { key: { owner: OWNER, id: 'some' }, data: new Uint8Array([5]) },
    ]);
  });
});
