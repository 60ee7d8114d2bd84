import { defineTable, text } from '@sibyl/plugin-kit/tables';
import { sql } from 'kysely';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { createTestDatabase } from '../../../test/support/test-database.js';
import type { Database } from '../database.js';
import { openDatabase } from '../open-database.js';
import { keepRules, readCatalog, type StoredTable } from './table-catalog.js';

let database: Database;

beforeEach(async () => {
  const { options, drop } = await createTestDatabase('sqlite');
  database = await openDatabase(options);
  onTestFinished(async () => {
    await database.close();
    await drop();
  });
});

const execute = (statement: string) =>
  database.write((tables) => sql.raw(statement).execute(tables));

async function readTable(name: string): Promise<StoredTable | undefined> {
  return (await readCatalog(database)).find((table) => table.name === name);
}

const readNames = async () => (await readCatalog(database)).map(({ name }) => name);

describe('readCatalog on sqlite', () => {
  it('describes the table of a plugin: columns in their order, key in its own order', async () => {
    await execute(`create table notes_pages
      (body text, id text, owner text, size integer, primary key (owner, id))`);
    expect(await readTable('notes_pages')).toEqual({
      name: 'notes_pages',
      columns: [
        { name: 'body', kind: 'text' },
        { name: 'id', kind: 'text' },
        { name: 'owner', kind: 'text' },
        { name: 'size', kind: 'number' },
      ],
      key: ['owner', 'id'],
      ownerColumn: 'owner',
      parents: [],
      rules: { omitted: {}, sealed: {} },
    });
  });

  it('knows what the definition of a plugin says, also when the plugin is not loaded any more', async () => {
    const ledger = defineTable(
      'notes_ledger',
      { owner: text(), id: text(), secret: text().omitted() },
      { key: ['owner', 'id'], onErase: { keeps: 'rows', reason: 'A ledger' }, isDerived: true },
    );
    await execute('create table notes_ledger (owner text, id text, secret text)');
    await keepRules(database, [ledger]);
    await keepRules(database, [ledger]);
    expect((await readTable('notes_ledger'))?.rules).toEqual({
      onErase: { keeps: 'rows', reason: 'A ledger' },
      isDerived: true,
      omitted: { secret: 'a credential' },
      sealed: {},
    });
  });

  it.each([
    ...['text', 'TEXT', 'varchar(255)', 'character varying(9)', 'uuid'].map((t) => [t, 'text']),
    ...['bigint', 'integer', 'INTEGER', 'smallint', 'int', 'real'].map((t) => [t, 'number']),
    ...['double precision', 'numeric(9, 2)', 'bigserial'].map((t) => [t, 'number']),
    ...['bytea', 'blob', 'BLOB'].map((t) => [t, 'bytes']),
    ...['tsvector', 'json', '', 'context', 'point', 'unreal', 'a blob', 'mybytea'].map((t) => [
      t,
      'other',
    ]),
  ])('knows the kind of values of the type "%s": %s', async (type, kind) => {
    await execute(`create table notes_pages (value ${type})`);
    expect((await readTable('notes_pages'))?.columns).toEqual([{ name: 'value', kind }]);
  });

  it('knows whose the rows of a table are', async () => {
    await execute('create table notes_shared (did text primary key, author text)');
    expect((await readTable('callers'))?.ownerColumn).toBe('did');
    expect((await readTable('sessions'))?.ownerColumn).toBe('owner');
    expect((await readTable('model_usage'))?.ownerColumn).toBeUndefined();
    expect((await readTable('notes_shared'))?.ownerColumn).toBeUndefined();
  });

  it('has no key for a table without one', async () => {
    await execute('create table notes_lines (owner text, line text unique)');
    expect((await readTable('notes_lines'))?.key).toEqual([]);
  });

  it('lists parents before the tables that refer to them, each table once', async () => {
    await execute('create table a_lines (id text primary key, page text references b_pages (id))');
    await execute(`create table b_pages
      (id text primary key, book text references c_books (id), next text references c_books (id))`);
    await execute('create table c_books (id text primary key)');
    const names = await readNames();
    expect(names.filter((name) => /^[abc]_/.test(name))).toEqual(['c_books', 'b_pages', 'a_lines']);
    expect(new Set(names).size).toBe(names.length);
    expect(names.indexOf('sessions')).toBeLessThan(names.indexOf('runs'));
    expect(names.indexOf('runs')).toBeLessThan(names.indexOf('frames'));
    expect((await readTable('b_pages'))?.parents).toEqual(['c_books']);
    expect((await readTable('a_lines'))?.parents).toEqual(['b_pages']);
  });

  it('lists tables that refer to themselves or to each other', async () => {
    await execute('create table a_tree (id text primary key, up text references a_tree (id))');
    await execute('create table b_hen (id text primary key, egg text references c_egg (id))');
    await execute('create table c_egg (id text primary key, hen text references b_hen (id))');
    const names = (await readNames()).filter((name) => /^[abc]_/.test(name));
    expect(names.toSorted()).toEqual(['a_tree', 'b_hen', 'c_egg']);
  });

  it('leaves out the tables of full-text indexes and of SQLite itself', async () => {
    await execute('create table notes_pages (id integer primary key autoincrement)');
    await execute('create table sqlitenotes (id text)');
    await execute('create view notes_view as select id from notes_pages');
    const names = await readNames();
    expect(names.filter((name) => /^(file_words|sqlite_|notes_view)/.test(name))).toEqual([]);
    expect(names).toContain('sqlitenotes');
    expect(names).toContain('file_passages');
  });
});
