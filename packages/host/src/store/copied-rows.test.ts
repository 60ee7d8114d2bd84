import { DatabaseSync } from 'node:sqlite';
import { type Kysely, type KyselyPlugin, sql } from 'kysely';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { createTestDatabase } from '../../test/support/test-database.js';
import { copyDatabase, type TableDigest } from './copy-database.js';
import type { Database } from './database.js';
import { openDatabase } from './open-database.js';
import type { Schema } from './schema/index.js';
import { toSqlitePath } from './sqlite/sqlite.js';
import { StoreError } from './store-errors.js';

type Value = string | number | null | Uint8Array;
type Row = Readonly<Record<string, Value>>;

const ALICE = 'did:key:zAlice';
const BOB = 'did:key:zBob';

let source: Database;
let sourceFile: string;
let target: Database;

beforeEach(async () => {
  const opened = await open();
  source = opened.database;
  sourceFile = opened.file;
  target = (await open()).database;
});

async function open() {
  const { options, drop } = await createTestDatabase('sqlite');
  const database = await openDatabase(options);
  onTestFinished(async () => {
    await database.close();
    await drop();
  });
  return { database, file: toSqlitePath(options.dataDir) };
}

const execute = (database: Database, statement: string) =>
  database.write((tables) => sql.raw(statement).execute(tables));

async function insert(database: Database, table: string, rows: readonly Row[]): Promise<void> {
  const columns = Object.keys(rows[0] ?? {});
  await database.write(async (tables) => {
    for (const row of rows)
      await sql`insert into ${sql.table(table)} (${sql.join(columns.map((name) => sql.ref(name)))})
        values (${sql.join(columns.map((name) => row[name]))})`.execute(tables);
  });
}

/** All rows of a table, in the order of their texts. */
async function readRows({ tables }: Database, table: string): Promise<readonly Row[]> {
  const { rows } = await sql<Row>`select * from ${sql.table(table)}`.execute(tables);
  return rows.toSorted((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
}

async function expectSameRows(...tables: readonly string[]): Promise<void> {
  for (const table of tables)
    expect(await readRows(target, table), table).toEqual(await readRows(source, table));
}

async function expectEmptyTarget(...tables: readonly string[]): Promise<void> {
  for (const table of tables) expect(await readRows(target, table), table).toEqual([]);
}

function findDigest(copied: readonly TableDigest[], table: string): TableDigest {
  const found = copied.find((digest) => digest.table === table);
  if (!found) throw new Error(`${table} was not copied`);
  return found;
}

const createSession = (owner: string, id: string): Row => ({
  ...{ owner, id, title: 'Ünïcode 🌍', created_at: 1, last_updated_at: 2, oracle_name: null },
  ...{ oracle_did: 'did:key:zOracle', room_id: 'room', last_seq: 1, last_turn: 1 },
  ...{ active_branch: 0, last_branch: 0 },
});

const createMessage = (owner: string, id: string, seq: number): Row => ({
  ...{ owner, id, session_id: 'session', turn: 1, seq, type: 'human', content: `text ${seq}` },
  ...{ branch: 0, request_id: 'r', is_complete: 1, created_at: 3 },
});

const createRoom = (owner: string, id: string, createdAt = 1): Row => ({
  ...{ owner, id, oracle_did: `did:key:${id}`, created_at: createdAt },
});

const createBlob = (id: string, data: Uint8Array): Row => ({
  ...{ owner: ALICE, id, plugin: 'notes', media_type: 'image/png', size: data.length, data },
  created_at: 4,
});

const range = (length: number) => Array.from({ length }, (_, i) => i);

/** Counts the rows that each query of a copy reads. */
class PageSizes implements KyselyPlugin {
  readonly sizes: number[] = [];

  transformQuery: KyselyPlugin['transformQuery'] = ({ node }) => node;

  transformResult: KyselyPlugin['transformResult'] = async ({ result }) => {
    if (result.rows.length > 0) this.sizes.push(result.rows.length);
    return result;
  };

  observe(database: Database): Database {
    const watch = (tables: Kysely<Schema>) => tables.withPlugin(this);
    return { ...database, read: (unit) => database.read((tables) => unit(watch(tables))) };
  }
}

it('copyDatabase copies the rows of all owners, also those with the same ids', async () => {
  await insert(source, 'sessions', [
    createSession(ALICE, 'session'),
    createSession(BOB, 'session'),
  ]);
  await insert(source, 'messages', [
    ...[createMessage(ALICE, 'm1', 1), createMessage(ALICE, 'm2', 2)],
    createMessage(BOB, 'm1', 1),
  ]);
  await insert(source, 'rooms', [createRoom(ALICE, 'room'), createRoom(BOB, 'room')]);
  const cost = { input_tokens: 1, output_tokens: 2, cached_tokens: 0, cost: 0.1 };
  await insert(source, 'usage_days', [
    { owner: ALICE, day: '2026-01-01', session_id: 's', model: 'm', turns: 1, ...cost },
    { owner: ALICE, day: '2026-01-02', session_id: 's', model: '', turns: 1, ...cost, cost: null },
  ]);
  await insert(source, 'blobs', [createBlob('b', new Uint8Array([0, 255, 128]))]);
  const copied = await copyDatabase(source, target);
  await expectSameRows('sessions', 'messages', 'rooms', 'usage_days', 'blobs');
  const counts = copied.filter(({ rows }) => rows > 0).map(({ table, rows }) => [table, rows]);
  expect(Object.fromEntries(counts)).toEqual({
    ...{ sessions: 2, messages: 3, rooms: 2, usage_days: 2, blobs: 1 },
  });
});

it('copyDatabase leaves out what is about running hosts, and what the target computes or knows itself', async () => {
  await insert(source, 'database_info', [{ key: 'oracle_did', value: 'did:key:zOld' }]);
  await insert(target, 'database_info', [{ key: 'oracle_did', value: 'did:key:zNew' }]);
  await insert(source, 'hosts', [{ id: 'h', report: '{}', started_at: 1, updated_at: 1 }]);
  const call = { owner: ALICE, session_id: 's', host_id: 'h' };
  await insert(source, 'socket_hosts', [{ ...call, sockets: 1 }]);
  await insert(source, 'page_calls', [{ ...call, call_id: 'c' }]);
  await insert(source, 'search_queue', [{ owner: ALICE, source: 'message', id: 'm', version: 1 }]);
  // SQLite has it in another file, PostgreSQL in the same database.
  await execute(source, 'create table search_documents (owner text, id text)');
  await insert(source, 'search_documents', [{ owner: ALICE, id: 'm' }]);
  const copied = await copyDatabase(source, target);
  const left = ['hosts', 'socket_hosts', 'page_calls', 'search_queue'];
  await expectEmptyTarget(...left);
  expect(await readRows(target, 'database_info')).toEqual([
    { key: 'oracle_did', value: 'did:key:zNew' },
  ]);
  const names = copied.map(({ table }) => table);
  for (const name of [...left, 'database_info', 'search_documents', 'kysely_migration'])
    expect(names).not.toContain(name);
});

it('copyDatabase copies erasures that have not ended, so that a host of the target continues them', async () => {
  const open = { key: `erasure ${ALICE}`, value: '00000000-0000-4000-8000-000000000000 host-a' };
  await insert(source, 'database_info', [open, { key: 'oracle_did', value: 'did:key:zOld' }]);
  await copyDatabase(source, target);
  expect(await readRows(target, 'database_info')).toEqual([open]);
});

it('copyDatabase ignores tables and columns that only the target has', async () => {
  await insert(source, 'rooms', [createRoom(ALICE, 'room')]);
  await execute(target, 'create table notes_pages (owner text primary key)');
  await execute(target, "insert into notes_pages values ('did:key:zAlice')");
  await execute(target, "alter table rooms add column color text not null default 'blue'");
  await copyDatabase(source, target);
  expect(await readRows(target, 'rooms')).toEqual([
    { ...createRoom(ALICE, 'room'), color: 'blue' },
  ]);
});

it('copyDatabase queues every session for search, and does not queue one twice', async () => {
  await insert(source, 'sessions', [createSession(ALICE, 'one'), createSession(BOB, 'two')]);
  await insert(target, 'search_queue', [{ owner: BOB, source: 'session', id: 'two', version: 7 }]);
  await copyDatabase(source, target);
  const queued = await readRows(target, 'search_queue');
  expect(queued.filter((row) => row.source === 'session')).toEqual([
    { owner: ALICE, source: 'session', id: 'one', version: 1 },
    { owner: BOB, source: 'session', id: 'two', version: 7 },
  ]);
});

it('copyDatabase numbers the passages of files again, so that they can be searched', async () => {
  const passage = { owner: ALICE, file_id: 'f', place: 1, position: '{}', scope: 'a' };
  await insert(source, 'file_passages', [
    { ...passage, n: 1, text: 'wheat', seq: 40 },
    { ...passage, n: 2, text: 'barley', seq: 90 },
  ]);
  await copyDatabase(source, target);
  const { rows } = await sql<Row>`select seq, text from file_passages
    where seq in (select rowid from file_words where file_words match 'barley')`.execute(
    target.tables,
  );
  expect(rows).toEqual([{ seq: 2, text: 'barley' }]);
});

it('copyDatabase does not copy computed columns, which the target may lack', async () => {
  await execute(source, 'create table notes_pages (id text primary key, words tsvector)');
  await execute(target, 'create table notes_pages (id text primary key)');
  await execute(source, "insert into notes_pages values ('one', 'computed')");
  await copyDatabase(source, target);
  expect(await readRows(target, 'notes_pages')).toEqual([{ id: 'one' }]);
});

it('copyDatabase replaces NUL characters of a row as every write does', async () => {
  const handle = new DatabaseSync(sourceFile);
  handle.prepare('insert into rooms values (?, ?, ?, 1)').run(ALICE, 'a\0b', 'did:key:zOracle');
  handle.close();
  await copyDatabase(source, target);
  expect(await readRows(target, 'rooms')).toMatchObject([{ id: 'a\uFFFDb' }]);
});

it.each([499, 500, 501, 1000, 1201])('copyDatabase copies all of %i rows', async (length) => {
  await insert(
    source,
    'rooms',
    range(length).map((i) => createRoom(i % 2 === 0 ? ALICE : BOB, `room ${i}`)),
  );
  const pages = new PageSizes();
  const copied = await copyDatabase(pages.observe(source), target);
  expect(findDigest(copied, 'rooms').rows).toBe(length);
  await expectSameRows('rooms');
  expect(pages.sizes.reduce((sum, size) => sum + size)).toBe(length);
  expect(Math.max(...pages.sizes)).toBe(Math.min(length, 500));
});

it('copyDatabase reads few files at a time', async () => {
  await insert(
    source,
    'blobs',
    range(45).map((i) => createBlob(`blob ${i}`, new Uint8Array([i]))),
  );
  const pages = new PageSizes();
  await copyDatabase(pages.observe(source), target);
  expect(pages.sizes).toEqual([20, 20, 5]);
  await expectSameRows('blobs');
});

it('copyDatabase copies tables without a key, equal rows included', async () => {
  for (const database of [source, target])
    await execute(database, 'create table notes_lines (owner text, line text)');
  const rows = range(1200).map((i) => ({ owner: ALICE, line: `line ${i % 7}` }));
  await insert(source, 'notes_lines', rows);
  const copied = await copyDatabase(source, target);
  expect(findDigest(copied, 'notes_lines').rows).toBe(1200);
  await expectSameRows('notes_lines');
});

it('digests are equal for equal rows in any order of rows and columns', async () => {
  await execute(source, 'create table notes_lines (owner text, line text)');
  await execute(target, 'create table notes_lines (line text, owner text)');
  const rows = range(9).map((i) => ({ owner: ALICE, line: `line ${i}` }));
  await insert(source, 'notes_lines', rows.toReversed());
  const copied = await copyDatabase(source, target);
  const third = (await open()).database;
  await execute(third, 'create table notes_lines (owner text, line text)');
  const again = await copyDatabase(target, third);
  expect(again).toEqual(copied);
  expect(new Set(copied.map(({ hash }) => hash.length))).toEqual(new Set([64]));
  expect(findDigest(copied, 'notes_lines').hash).not.toBe(findDigest(copied, 'rooms').hash);
});

it('digests differ if a value differs', async () => {
  await insert(source, 'rooms', [createRoom(ALICE, 'room', 1)]);
  const other = (await open()).database;
  await insert(other, 'rooms', [createRoom(ALICE, 'room', 2)]);
  const first = findDigest(await copyDatabase(source, target), 'rooms');
  const second = findDigest(await copyDatabase(other, (await open()).database), 'rooms');
  expect(second.rows).toBe(first.rows);
  expect(second.hash).not.toBe(first.hash);
});

async function expectRefused(reason: RegExp): Promise<void> {
  const copying = copyDatabase(source, target);
  await expect(copying).rejects.toThrow(reason);
  await expect(copying).rejects.toBeInstanceOf(StoreError);
}

it('copyDatabase refuses a target that has rows, and changes nothing there', async () => {
  await insert(source, 'sessions', [createSession(ALICE, 'session')]);
  await insert(target, 'rooms', [createRoom(BOB, 'room')]);
  await expectRefused(/target is not empty: its table rooms has rows/);
  await expectEmptyTarget('sessions');
  expect(await readRows(target, 'rooms')).toEqual([createRoom(BOB, 'room')]);
});

it('copyDatabase refuses a target that lacks the table of a plugin', async () => {
  await execute(source, 'create table notes_pages (id text primary key)');
  await expectRefused(/lacks the table notes_pages,/);
});

it('copyDatabase refuses a target that lacks a column', async () => {
  await execute(source, 'create table notes_pages (id text primary key, a text, b text)');
  await execute(target, 'create table notes_pages (id text primary key, a text)');
  await expectRefused(/lacks the column b of notes_pages,/);
});

it.each([
  ['changes a value', "update rooms set created_at = 3 where id = 'one'"],
  ['removes a row', "delete from rooms where id = 'one'"],
  ['adds a row', `insert or ignore into rooms values ('${BOB}', 'x', 'did:x', 1)`],
])('copyDatabase commits nothing if the target %s', async (_, change) => {
  await insert(source, 'sessions', [createSession(ALICE, 'session')]);
  await insert(source, 'rooms', [createRoom(ALICE, 'one'), createRoom(BOB, 'two')]);
  await execute(
    target,
    `create trigger alter_room after insert on rooms when new.id = 'one' begin ${change}; end`,
  );
  await expectRefused(/^Nothing was copied: rooms has 2 rows/);
  await expectEmptyTarget('rooms', 'sessions', 'search_queue');
});

it('copyDatabase says how many rows the target would have', async () => {
  await insert(source, 'rooms', [createRoom(ALICE, 'one'), createRoom(BOB, 'two')]);
  const change = "delete from rooms where id = 'one'";
  await execute(target, `create trigger lose after insert on rooms begin ${change}; end`);
  await expectRefused(
    /rooms has 2 rows \([0-9a-f]{12}\), but the target would have 1 \([0-9a-f]{12}\)$/,
  );
});

it('copyDatabase commits nothing if the bytes of a file change', async () => {
  await insert(source, 'blobs', [createBlob('blob', new Uint8Array([1, 2, 3]))]);
  await execute(
    target,
    "create trigger alter_blob after insert on blobs begin update blobs set data = x'010204'; end",
  );
  await expectRefused(/^Nothing was copied: blobs has 1 rows/);
  await expectEmptyTarget('blobs');
});
