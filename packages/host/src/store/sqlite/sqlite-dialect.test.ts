import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Kysely, sql } from 'kysely';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { StoreError } from '../store-errors.js';
import { retryWhileBusy, SqliteDialect } from './sqlite-dialect.js';

interface Tables {
  items: { id: number; name: string | null };
}

let path: string;
let handle: DatabaseSync;
let dialect: SqliteDialect;
let tables: Kysely<Tables>;

beforeEach(() => {
  const folder = mkdtempSync(join(tmpdir(), 'sibyl-dialect-'));
  path = join(folder, 'x.db');
  handle = new DatabaseSync(path, { timeout: 0 });
  handle.exec('pragma journal_mode = wal; create table items (id integer primary key, name text)');
  dialect = new SqliteDialect(handle);
  tables = new Kysely<Tables>({ dialect });
  onTestFinished(() => {
    if (handle.isOpen) handle.close();
    rmSync(folder, { recursive: true });
  });
});

afterEach(() => void vi.useRealTimers());

const addItem = (on: Kysely<Tables>, id: number) =>
  on.insertInto('items').values({ id, name: null }).execute();

/** Whether another process could write now. */
function isWritable(): boolean {
  const other = new DatabaseSync(path, { timeout: 0 });
  try {
    other.exec('begin immediate; rollback');
    return true;
  } catch {
    return false;
  } finally {
    other.close();
  }
}

const countItems = () => handle.prepare('select count(*) as n from items').get()?.n;

describe('SqliteDialect', () => {
  it('returns rows of queries, and the number of rows that others change', async () => {
    await tables
      .insertInto('items')
      .values([
        { id: 1, name: 'a' },
        { id: 2, name: null },
      ])
      .execute();
    const changed = await sql`update items set name = 'b'`.execute(tables);
    expect(changed).toMatchObject({ rows: [], numAffectedRows: 2n });
    const returned = await sql`delete from items where id = 2 returning id, name`.execute(tables);
    expect(returned.rows).toEqual([{ id: 2, name: 'b' }]);
    const found = await sql`select id, name from items`.execute(tables);
    expect(found.rows).toEqual([{ id: 1, name: 'b' }]);
    expect(found.numAffectedRows).toBeUndefined();
  });

  it('returns the columns that a table has now', async () => {
    const select = () => sql`select * from items`.execute(tables);
    expect((await select()).rows).toEqual([]);
    await addItem(tables, 1);
    handle.exec("alter table items add column color text default 'blue'");
    expect((await select()).rows).toEqual([{ id: 1, name: null, color: 'blue' }]);
  });

  it('replaces NUL characters in values', async () => {
    await tables.insertInto('items').values({ id: 1, name: 'a\0b' }).execute();
    expect(handle.prepare('select name from items').get()).toEqual({ name: 'a\uFFFDb' });
  });

  it('does not stream rows', async () => {
    const stream = tables.selectFrom('items').selectAll().stream();
    await expect(stream[Symbol.asyncIterator]().next()).rejects.toThrow(/does not stream/);
  });

  it('writes a limit that is a whole number into the statement, and any other as it is', () => {
    const compile = (limit: Parameters<ReturnType<typeof select>['limit']>[0]) => {
      const { sql, parameters } = select().limit(limit).compile();
      return [sql.replace(/.* limit /, ''), parameters];
    };
    const select = () => tables.selectFrom('items').select('id');
    expect(compile(5)).toEqual(['5', []]);
    expect(compile(5n)).toEqual(['?', [5n]]);
    expect(compile(sql<number>`1 + 1`)).toEqual(['1 + 1', []]);
  });

  it('lists the tables, without views and indexes', async () => {
    handle.exec('create view some_items as select id from items; create index i on items (name)');
    const found = await tables.introspection.getTables();
    expect(found.map(({ name }) => name)).toEqual(['items']);
  });

  it('closes the handle with the tables', async () => {
    await addItem(tables, 1);
    await tables.destroy();
    expect(handle.isOpen).toBe(false);
  });
});

describe('prepared statements', () => {
  const run = (statement: string) => sql.raw(statement).execute(tables);
  const countPrepared = (prepare: { mock: { calls: unknown[][] } }, statement: string) =>
    prepare.mock.calls.filter(([text]) => text === statement).length;

  it('are used again', async () => {
    const prepare = vi.spyOn(handle, 'prepare');
    for (let i = 0; i < 3; i++) await run('select 1');
    expect(countPrepared(prepare, 'select 1')).toBe(1);
  });

  it('are forgotten when 200 others were used since', async () => {
    const prepare = vi.spyOn(handle, 'prepare');
    await run('select 0');
    for (let i = 1; i < 200; i++) await run(`select ${i}`);
    await run('select 0');
    expect(countPrepared(prepare, 'select 0')).toBe(1);
    for (let i = 1000; i < 1200; i++) await run(`select ${i}`);
    await run('select 0');
    expect(countPrepared(prepare, 'select 0')).toBe(2);
  });

  it('are forgotten when long ones need their memory', async () => {
    const prepare = vi.spyOn(handle, 'prepare');
    // About 1 MB each, with the memory that SQLite needs.
    const createLong = (i: number) => `select ${i} /* ${'x'.repeat(100_000)} */`;
    await run('select 0');
    await run(createLong(1));
    await run('select 0');
    expect(countPrepared(prepare, 'select 0')).toBe(1);
    for (let i = 2; i < 8; i++) await run(createLong(i));
    await run('select 0');
    expect(countPrepared(prepare, 'select 0')).toBe(2);
  });
});

describe('transactions', () => {
  it('take the write lock at once', async () => {
    await tables.transaction().execute(async (transaction) => {
      expect(isWritable()).toBe(false);
      await addItem(transaction, 1);
    });
    expect(isWritable()).toBe(true);
    expect(countItems()).toBe(1);
  });

  it('take no write lock if they only read', async () => {
    const reading = tables.transaction().setAccessMode('read only');
    await reading.execute(async (transaction) => {
      await transaction.selectFrom('items').selectAll().execute();
      expect(isWritable()).toBe(true);
      expect(handle.isTransaction).toBe(true);
    });
    expect(handle.isTransaction).toBe(false);
  });

  it('are rolled back when they fail', async () => {
    const failing = tables.transaction().execute(async (transaction) => {
      await addItem(transaction, 1);
      throw new Error('a bug');
    });
    await expect(failing).rejects.toThrow('a bug');
    expect(countItems()).toBe(0);
    expect(handle.isTransaction).toBe(false);
  });

  it('fail with the first error if SQLite has rolled back by itself', async () => {
    await addItem(tables, 1);
    const failing = tables.transaction().execute(async (transaction) => {
      await sql`insert or rollback into items (id) values (1)`.execute(transaction);
    });
    await expect(failing).rejects.toThrow(/UNIQUE constraint/);
  });

  it('wait in SQLite only while they do not write', async () => {
    const readTimeout = () => handle.prepare('pragma busy_timeout').get();
    await tables.selectFrom('items').selectAll().execute();
    expect(readTimeout()).toEqual({ timeout: 5_000 });
    await tables.transaction().execute((transaction) => addItem(transaction, 1));
    expect(readTimeout()).toEqual({ timeout: 0 });
  });

  it('undo a part without the rest', async () => {
    const { driver } = dialect;
    await driver.beginTransaction();
    const { tables: unit } = dialect.openUnit<Tables>();
    for (const id of [1, 2, 3]) {
      driver.beginUnit();
      await addItem(unit, id);
      if (id === 2) driver.undoUnit();
      else driver.endUnit();
    }
    await driver.commitTransaction();
    const { rows } = await sql`select id from items`.execute(tables);
    expect(rows).toEqual([{ id: 1 }, { id: 3 }]);
  });
});

describe('SqliteDialect.openUnit', () => {
  async function expectOver(query: Promise<unknown>): Promise<void> {
    await expect(query).rejects.toThrow('The unit of work is over');
    await expect(query).rejects.toBeInstanceOf(StoreError);
  }

  it('rejects queries before a transaction begins and after it ends', async () => {
    const { tables: unit } = dialect.openUnit<Tables>();
    await expectOver(addItem(unit, 1));
    await dialect.driver.beginTransaction();
    await addItem(unit, 2);
    await dialect.driver.commitTransaction();
    await expectOver(addItem(unit, 3));
    expect(countItems()).toBe(1);
  });

  it('rejects queries after it was closed, also inside of a transaction', async () => {
    const { tables: unit, close } = dialect.openUnit<Tables>();
    await dialect.driver.beginTransaction();
    close();
    await expectOver(addItem(unit, 1));
    await dialect.driver.rollbackTransaction();
    expect(countItems()).toBe(0);
  });
});

describe('the connection for prepared queries', () => {
  it('is free for those that belong to what it is doing', async () => {
    const adapter = dialect.createAdapter();
    const find = (inTransaction: boolean): unknown =>
      'findFreeConnection' in adapter && typeof adapter.findFreeConnection === 'function'
        ? adapter.findFreeConnection(inTransaction)
        : new Error('no direct adapter');
    const connection = await dialect.driver.acquireConnection();
    expect([find(false), find(true)]).toEqual([connection, undefined]);
    await dialect.driver.beginTransaction();
    expect([find(false), find(true)]).toEqual([undefined, connection]);
    await dialect.driver.rollbackTransaction();
  });
});

it('queries let other events be handled after 10 ms, and not before', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  // A process that has run for a while.
  vi.advanceTimersByTime(60_000);
  // What earlier tests began ends with the turn of the event loop.
  await nextTurn();
  await nextTurn();
  const query = () => sql`select 1`.execute(tables);
  let isHandled = false;
  await query();
  setImmediate(() => {
    isHandled = true;
  });
  for (let i = 0; i < 50; i++) await query();
  vi.advanceTimersByTime(10);
  await query();
  expect(isHandled).toBe(false);
  vi.advanceTimersByTime(1);
  await query();
  expect(isHandled).toBe(true);
});

describe('retryWhileBusy', () => {
  const createError = (errcode: number) => Object.assign(new Error('locked'), { errcode });

  /** Fails with each error in turn, then returns. */
  function failWith(...errors: readonly unknown[]) {
    const left = [...errors];
    return vi.fn(() => {
      if (left.length > 0) throw left.shift();
      return 'done';
    });
  }

  it('tries again while the file is locked, for any reason', async () => {
    // BUSY, BUSY_RECOVERY, BUSY_SNAPSHOT
    const attempt = failWith(createError(5), createError(261), createError(517));
    expect(await retryWhileBusy(attempt)).toBe('done');
    expect(attempt).toHaveBeenCalledTimes(4);
  });

  it.each([
    ['another error of SQLite', createError(6)],
    ['an error with a code that only contains that of a lock', createError(13)],
    ['an error without a code', new Error('a bug')],
    ['what is not an error', { errcode: 5 }],
  ])('does not try again after %s', async (_, error) => {
    const attempt = failWith(error);
    await expect(retryWhileBusy(attempt)).rejects.toBe(error);
    expect(attempt).toHaveBeenCalledTimes(1);
  });

  it('stops after 20 seconds, and says what to do', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const error = createError(5);
    const waits = [0, 19_999, 1, 1];
    const attempt = vi.fn(() => {
      vi.advanceTimersByTime(waits.shift() ?? 0);
      throw error;
    });
    const failure = await retryWhileBusy(attempt).catch((reason) => reason);
    expect(failure).toBeInstanceOf(StoreError);
    expect(failure.message).toMatch(/locked the SQLite file for 20 s; end it or use PostgreSQL/);
    expect(failure.cause).toBe(error);
    expect(attempt).toHaveBeenCalledTimes(4);
  });
});
