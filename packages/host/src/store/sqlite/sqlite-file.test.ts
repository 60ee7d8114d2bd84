import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { defineTable, text } from '@sibyl/plugin-kit/tables';
import { sql } from 'kysely';
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import type { Database } from '../database.js';
import { StoreError } from '../store-errors.js';
import { openSqlite, probeSqlite, toSqlitePath } from './sqlite.js';

const NOT_A_DATABASE = 'not a database, but long enough to be taken for one\n'.repeat(20);

const PAGE_BYTES = 4096;

let dataDir: string;
let path: string;

beforeEach(() => {
  dataDir = realpathSync(mkdtempSync(join(tmpdir(), 'sibyl-file-')));
  path = toSqlitePath(dataDir);
  onTestFinished(() => rmSync(dataDir, { recursive: true, force: true }));
});

async function open(folder = dataDir): Promise<Database> {
  const database = await openSqlite(folder);
  onTestFinished(() => database.close());
  return database;
}

const createFile = async () => (await openSqlite(dataDir)).close();

function change(statement: string): void {
  const handle = new DatabaseSync(path);
  handle.exec(statement);
  handle.close();
}

function readRootPage(table: string): number {
  const handle = new DatabaseSync(path);
  const row = handle.prepare('select rootpage from sqlite_schema where name = ?').get(table);
  handle.close();
  return Number(row?.rootpage);
}

function damagePage(page: number): void {
  const file = openSync(path, 'r+');
  writeSync(file, Buffer.alloc(PAGE_BYTES, 0xa5), 0, PAGE_BYTES, (page - 1) * PAGE_BYTES);
  closeSync(file);
}

const getMode = (file: string) => statSync(file).mode & 0o777;

/** The files below the folder that this process has open. */
function listOpenFiles(): string[] {
  return readdirSync('/proc/self/fd').flatMap((descriptor) => {
    try {
      const file = readlinkSync(`/proc/self/fd/${descriptor}`);
      return file.startsWith(dataDir) ? [file] : [];
    } catch {
      return [];
    }
  });
}

const createFull = () =>
  Object.assign(new Error('database or disk is full'), { code: 'ERR_SQLITE_ERROR', errcode: 13 });

/** Statements that match fail until the returned function is called. */
function failAt(statements: RegExp, error: Error): () => void {
  const { exec } = DatabaseSync.prototype;
  const spy = vi.spyOn(DatabaseSync.prototype, 'exec');
  spy.mockImplementation(function (this: DatabaseSync, statement: string) {
    if (statements.test(statement)) throw error;
    exec.call(this, statement);
  });
  onTestFinished(() => spy.mockRestore());
  return () => spy.mockRestore();
}

const addRoom = (id: string) => (tables: Database['tables']) =>
  tables.insertInto('rooms').values({ id, owner: id, oracle_did: 'o', created_at: 1 }).execute();

async function countRooms(tables: Database['tables']): Promise<number> {
  return (await tables.selectFrom('rooms').select('id').execute()).length;
}

async function catchError(work: Promise<unknown>): Promise<Error> {
  const error = await work.then(
    () => undefined,
    (reason) => reason,
  );
  if (!(error instanceof Error)) throw new Error('it did not fail');
  return error;
}

describe('openSqlite', () => {
  it('creates a folder and files that only this user can read', async () => {
    const folder = join(dataDir, 'a', 'b');
    const database = await open(folder);
    await database.write(addRoom('a'));
    expect(getMode(folder)).toBe(0o700);
    for (const name of ['sibyl.db', 'sibyl.db-wal', 'sibyl.db-shm'])
      expect(getMode(join(folder, name)), name).toBe(0o600);
  });

  it('keeps the mode of an existing folder, but not that of the file', async () => {
    chmodSync(dataDir, 0o755);
    await createFile();
    chmodSync(path, 0o644);
    await open();
    expect(getMode(dataDir)).toBe(0o755);
    expect(getMode(path)).toBe(0o600);
  });

  it('limits the log, and lets the file shrink', async () => {
    const database = await open();
    const pragma = (name: string) =>
      database.write(async (tables) => {
        const { rows } = await sql<object>`${sql.raw(`pragma ${name}`)}`.execute(tables);
        return Object.values(rows[0] ?? {})[0];
      });
    expect(await pragma('wal_autocheckpoint')).toBe(4096);
    expect(await pragma('journal_size_limit')).toBe(16 * 1024 * 1024);
    expect(await pragma('auto_vacuum')).toBe(2);
  });

  it('reads on a connection that cannot write, which waits for others', async () => {
    const { engine, tables } = await open();
    expect(engine).toBe('sqlite');
    await expect(addRoom('a')(tables)).rejects.toThrow(/readonly/);
    const { rows } = await sql`pragma busy_timeout`.execute(tables);
    expect(rows).toEqual([{ timeout: 5_000 }]);
  });

  it('reads several times from one snapshot', async () => {
    const database = await open();
    const counts = await database.read(async (tables) => {
      const before = await countRooms(tables);
      await database.write(addRoom('a'));
      return [before, await countRooms(tables)];
    });
    expect(counts).toEqual([0, 0]);
    expect(await countRooms(database.tables)).toBe(1);
  });

  it('writes for an owner, and announces the commit with its value', async () => {
    const database = await open();
    const committed: string[] = [];
    const unit = async (tables: Database['tables']) => {
      await addRoom('a')(tables);
      return 'value';
    };
    expect(await database.writeFor('a', unit, { onCommit: (value) => committed.push(value) })).toBe(
      'value',
    );
    expect(committed).toEqual(['value']);
    expect(await countRooms(database.tables)).toBe(1);
  });

  it('leaves one file when it is closed, with all that was written', async () => {
    const database = await openSqlite(dataDir);
    const writing = database.write(addRoom('a'));
    await database.close();
    await writing;
    expect(readdirSync(dataDir)).toEqual(['sibyl.db']);
    expect(listOpenFiles()).toEqual([]);
    expect(await countRooms((await open()).tables)).toBe(1);
  });

  it.each([
    ['a file that is not a database', () => writeFileSync(path, NOT_A_DATABASE), 'not a database'],
    ['a folder', () => mkdirSync(path), 'EISDIR'],
  ])('names the path of %s', async (_, prepare, reason) => {
    prepare();
    const error = await catchError(openSqlite(dataDir));
    expect(error).toBeInstanceOf(StoreError);
    expect(error.message).toMatch(new RegExp(`^Cannot open the SQLite file ${path}: .*${reason}`));
    expect(error.message).toMatch(/; check DATA_DIR$/);
    expect(error.cause).toBeInstanceOf(Error);
  });

  it('names a file with damaged content, and closes it', async () => {
    await createFile();
    damagePage(readRootPage('kysely_migration'));
    const error = await catchError(openSqlite(dataDir));
    expect(error).toBeInstanceOf(StoreError);
    expect(error.message).toMatch(/^Cannot open the SQLite file .*malformed; check DATA_DIR$/);
    expect(listOpenFiles()).toEqual([]);
  });

  it('rejects a file of a newer version as it is, and closes it', async () => {
    await createFile();
    change("insert into kysely_migration values ('9999-later', '2999-01-01T00:00:00.000Z')");
    const error = await catchError(openSqlite(dataDir));
    expect(error).toBeInstanceOf(StoreError);
    expect(error.message).toMatch(/^This database was written by a newer Sibyl .*9999-later/);
    expect(listOpenFiles()).toEqual([]);
  });

  it('does not blame DATA_DIR for an error in a migration', async () => {
    change('create table sessions (id text)');
    const error = await catchError(openSqlite(dataDir));
    expect(error).not.toBeInstanceOf(StoreError);
    expect(error.message).toMatch(/already exists/);
  });
});

describe('a full disk', () => {
  it('is what openSqlite and probeSqlite name, rather than DATA_DIR', async () => {
    await createFile();
    failAt(/journal_mode|begin immediate/, createFull());
    for (const use of [openSqlite, probeSqlite])
      await expect(use(dataDir)).rejects.toThrow(
        `Cannot open the SQLite file ${path}: database or disk is full; free some space on its disk, then start again`,
      );
    expect(listOpenFiles()).toEqual([]);
  });

  it('is not the reason of every error: bugs are thrown', async () => {
    const end = failAt(/temp_store/, new Error('a bug'));
    await expect(openSqlite(dataDir)).rejects.toThrow('a bug');
    end();
    const database = await open();
    failAt(/wal_checkpoint/, new Error('another bug'));
    await expect(database.reclaim()).rejects.toThrow('another bug');
  });
});

describe('Database.migrate on sqlite', () => {
  const createStep = (statement: string) => ({
    up: async (tables: Database['tables']) => {
      await sql.raw(statement).execute(tables);
    },
  });
  const notes = defineTable('notes_pages', { owner: text() }, { key: ['owner'] });
  const createPlan = (...statements: readonly string[]) => ({
    ...{ author: 'a plugin', table: 'notes_migration', lockTable: 'notes_migration_lock' },
    tables: [notes],
    steps: Object.fromEntries(statements.map((each, i) => [`000${i + 1}`, createStep(each)])),
  });
  const listTables = () => {
    const handle = new DatabaseSync(path, { readOnly: true });
    const rows = handle
      .prepare("select name from sqlite_schema where name glob 'notes_[ab]'")
      .all();
    handle.close();
    return rows.map(({ name }) => name);
  };

  it('runs the steps of another schema once', async () => {
    const database = await open();
    await database.migrate(createPlan());
    await database.migrate(createPlan('create table notes_a (id text)'));
    const more = createPlan('create table notes_a (id text)', 'create table notes_b (id text)');
    await database.migrate(more);
    expect(listTables()).toEqual(['notes_a', 'notes_b']);
  });

  it('keeps nothing of steps before one that fails', async () => {
    const database = await open();
    await database.migrate(createPlan());
    const plan = createPlan('create table notes_a (id text)', 'create tabel notes_b (id text)');
    await expect(database.migrate(plan)).rejects.toThrow(/syntax error/);
    expect(listTables()).toEqual([]);
  });
});

describe('Database.reclaim on sqlite', () => {
  it('does not fail while a unit of work is in progress', async () => {
    const database = await open();
    await database.write(async (tables) => {
      await addRoom('a')(tables);
      await database.reclaim();
    });
    expect(await countRooms(database.tables)).toBe(1);
  });

  it('moves the log into the file', async () => {
    const database = await open();
    await database.write(addRoom('a room with a remarkable id'));
    await database.reclaim();
    expect(readFileSync(path).includes('a room with a remarkable id')).toBe(true);
  });
});

describe('probeSqlite', () => {
  it('finds no file, and creates none', async () => {
    const folder = join(dataDir, 'missing');
    expect(await probeSqlite(folder)).toBe('absent');
    expect(existsSync(folder)).toBe(false);
    expect(await probeSqlite(dataDir)).toBe('absent');
    expect(readdirSync(dataDir)).toEqual([]);
  });

  it('finds a file that is ready, changes nothing and closes it', async () => {
    await createFile();
    const before = readFileSync(path);
    expect(await probeSqlite(dataDir)).toBe('ready');
    expect(readFileSync(path).equals(before)).toBe(true);
    expect(readdirSync(dataDir)).toEqual(['sibyl.db']);
    expect(listOpenFiles()).toEqual([]);
  });

  it('finds a file of an older version, and does not migrate it', async () => {
    await createFile();
    change('delete from kysely_migration');
    expect(await probeSqlite(dataDir)).toBe('behind');
    expect(await probeSqlite(dataDir)).toBe('behind');
  });

  it('rejects a file of a newer version, and closes it', async () => {
    await createFile();
    change("insert into kysely_migration values ('9999-later', '2999-01-01T00:00:00.000Z')");
    await expect(probeSqlite(dataDir)).rejects.toThrow(/^This database was written by a newer/);
    expect(listOpenFiles()).toEqual([]);
  });

  it('names a file that is not a database', async () => {
    writeFileSync(path, NOT_A_DATABASE);
    const error = await catchError(probeSqlite(dataDir));
    expect(error).toBeInstanceOf(StoreError);
    expect(error.message).toBe(
      `Cannot open the SQLite file ${path}: file is not a database; check DATA_DIR`,
    );
  });

  it('waits for a process that writes', async () => {
    await createFile();
    const other = new DatabaseSync(path);
    onTestFinished(() => other.close());
    other.exec('begin immediate');
    let state = 'waiting';
    const probing = probeSqlite(dataDir).then((found) => {
      state = found;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(state).toBe('waiting');
    other.exec('rollback');
    await probing;
    expect(state).toBe('ready');
  });
});
