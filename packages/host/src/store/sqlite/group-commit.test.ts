import fs, { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { sql } from 'kysely';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Database, Unit } from '../database.js';
import { UnsyncedError } from '../store-errors.js';
import { openSqlite } from './sqlite.js';

let database: Database;
let file: string;

beforeEach(async () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-group-'));
  file = join(dataDir, 'sibyl.db');
  database = await openSqlite(dataDir);
});

afterEach(async () => {
  await database.close();
  rmSync(dirname(file), { recursive: true });
});

function addRoom(id: string): Unit<string> {
  return async (tables) => {
    const room = { id, owner: id, oracle_did: 'did:o', created_at: 0 };
    await tables.insertInto('rooms').values(room).execute();
    return id;
  };
}

async function roomIds(): Promise<string[]> {
  const rows = await database.tables.selectFrom('rooms').select('id').orderBy('id').execute();
  return rows.map(({ id }) => id);
}

it('openSqlite keeps the file intact and enforces foreign keys', async () => {
  const pragma = (name: string) =>
    database.write(async (tables) => {
      const { rows } = await sql<object>`${sql.raw(`pragma ${name}`)}`.execute(tables);
      return Object.values(rows[0] ?? {});
    });
  expect(await pragma('journal_mode')).toEqual(['wal']);
  expect(await pragma('synchronous')).toEqual([1]);
  expect(await pragma('foreign_keys')).toEqual([1]);
});

describe('while the disk is slow', () => {
  const wanted: { descriptor: number; finish: (error: Error | null) => void }[] = [];

  beforeEach(() => {
    vi.spyOn(fs, 'fdatasync').mockImplementation((descriptor, finish) => {
      wanted.push({ descriptor, finish: finish as (error: Error | null) => void });
    });
  });

  afterEach(() => {
    vi.restoreAllMocks();
    for (const { finish } of wanted.splice(0)) finish(null);
  });

  const nextSync = () =>
    vi.waitFor(() => wanted[0] ?? Promise.reject(new Error('no sync')), { timeout: 60_000 });

  it('GroupCommit resolves once the log is on disk, and then commits what was submitted meanwhile', async () => {
    const settled: string[] = [];
    const first = database.write(addRoom('a')).then((id) => settled.push(id));
    const { descriptor, finish } = await nextSync();
    expect(fs.readlinkSync(`/proc/self/fd/${descriptor}`)).toBe(`${fs.realpathSync(file)}-wal`);
    const more = ['b', 'c'].map((id) => database.write(addRoom(id)));
    expect(await roomIds()).toEqual(['a']);
    expect(settled).toEqual([]);
    wanted.splice(0);
    finish(null);
    await first;
    (await nextSync()).finish(null);
    expect(await Promise.all(more)).toEqual(['b', 'c']);
    expect(wanted).toHaveLength(1);
  });

  it('GroupCommit announces what is committed before it is on disk', async () => {
    const seen: string[] = [];
    const written = database
      .writeFor('a', addRoom('a'), { onCommit: (id) => seen.push(`committed ${id}`) })
      .then((id) => seen.push(`written ${id}`));
    const { finish } = await nextSync();
    expect(seen).toEqual(['committed a']);
    expect(await roomIds()).toEqual(['a']);
    finish(null);
    await written;
    expect(seen).toEqual(['committed a', 'written a']);
  });

  it('GroupCommit runs units that are first before those that wait already, and estimates how long they wait', async () => {
    const stored: string[] = [];
    const write = (id: string, isFirst = false) =>
      database.write(addRoom(id), { isFirst }).then(() => stored.push(id));
    const began = write('began');
    const { finish } = await nextSync();
    const waiting = Array.from({ length: 150 }, (_, i) => write(`waits ${i}`));
    expect(database.estimateDelay()).toBe(0);
    const end = write('end', true);
    wanted.splice(0);
    const slowMs = 100;
    await expect.poll(() => database.isStoring(slowMs)).toBe(false);
    finish(null);
    await began;
    expect(database.isStoring(slowMs)).toBe(true);
    // Two full commits wait for the one in progress; one commit has been measured.
    expect(database.estimateDelay()).toBeGreaterThan(0.3 * slowMs);
    (await nextSync()).finish(null);
    await end;
    expect(stored.slice(0, 2)).toEqual(['began', 'end']);
    vi.restoreAllMocks();
    await Promise.all(waiting);
    expect(database.estimateDelay()).toBe(0);
  });

  const failNextSync = async (code: string) => {
    const failed = database.write(addRoom(`unsynced ${code}`));
    const { finish } = await nextSync();
    wanted.splice(0);
    finish(Object.assign(new Error(code), { code }));
    await expect(failed).rejects.toThrow(/Cannot write .*sibyl\.db-wal to disk; check the disk/);
    await expect(failed).rejects.toBeInstanceOf(UnsyncedError);
  };

  it('GroupCommit tries again after the disk was full', async () => {
    await failNextSync('ENOSPC');
    const written = database.write(addRoom('b'));
    (await nextSync()).finish(null);
    expect(await written).toBe('b');
  });

  it('GroupCommit acknowledges nothing any more after the disk failed', async () => {
    await failNextSync('EIO');
    await expect(database.write(addRoom('b'))).rejects.toThrow(/start the host again/);
    expect(wanted).toEqual([]);
  });
});

it('GroupCommit runs concurrent units in one commit', async () => {
  const other = new DatabaseSync(file);
  const version = () => Object.values(other.prepare('pragma data_version').get() ?? {})[0];
  const seen: unknown[] = [version()];
  const writes = Array.from({ length: 50 }, (_, i) =>
    database.write(addRoom(`room${i}`)).then(() => seen.push(version())),
  );
  await Promise.all(writes);
  expect(new Set(seen).size).toBe(2);
  expect(await roomIds()).toHaveLength(50);
  other.close();
});

it('GroupCommit resolves after the commit', async () => {
  const other = new DatabaseSync(file);
  const count = other.prepare('select count(*) as n from rooms');
  for (let i = 1; i <= 20; i++) {
    await database.write(addRoom(`room${i}`));
    expect(count.get()).toEqual({ n: i });
  }
  other.close();
});

it('GroupCommit rolls back a unit that fails and keeps the others', async () => {
  const failing: Unit<never> = async (tables) => {
    await addRoom('half')(tables);
    throw new Error('changed my mind');
  };
  const results = await Promise.allSettled([
    database.write(addRoom('a')),
    database.write(failing),
    database.write(addRoom('a')),
    database.write(addRoom('b')),
  ]);
  expect(results.map(({ status }) => status)).toEqual([
    'fulfilled',
    'rejected',
    'rejected',
    'fulfilled',
  ]);
  expect(await roomIds()).toEqual(['a', 'b']);
});

it('GroupCommit rejects all units if the commit fails, and continues', async () => {
  const breaking: Unit<void> = async (tables) => {
    await sql`pragma defer_foreign_keys = on`.execute(tables);
    const chunk = { run_id: 'missing', owner: 'a', seq: 1, lines: 'e {}' };
    await tables.insertInto('frames').values(chunk).execute();
  };
  const results = await Promise.allSettled([
    database.write(addRoom('a')),
    database.write(breaking),
  ]);
  expect(results.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  await database.write(addRoom('b'));
  expect(await roomIds()).toEqual(['b']);
});

it('GroupCommit rejects queries of a unit that is over, also while another one runs', async () => {
  let over: Database['tables'] | undefined;
  await database.write(async (tables) => {
    over = tables;
  });
  const late = () => addRoom('late')(over as Database['tables']);
  await expect(late()).rejects.toThrow('The unit of work is over');
  await database.write(async (tables) => {
    await expect(late()).rejects.toThrow('The unit of work is over');
    await addRoom('a')(tables);
  });
  expect(await roomIds()).toEqual(['a']);
});

it('Database.tables reads columns that were added after its statement was prepared', async () => {
  await database.write(addRoom('a'));
  const read = () => database.tables.selectFrom('rooms').selectAll().execute();
  const before = Object.keys((await read())[0] ?? {});
  await database.write((tables) => sql`alter table rooms add column added text`.execute(tables));
  expect(Object.keys((await read())[0] ?? {})).toEqual([...before, 'added']);
});

it('SqliteDialect writes limits into statements, which SQLite would otherwise prepare at each run', () => {
  const { sql: text, parameters } = database.tables
    .selectFrom('rooms')
    .select('id')
    .where('owner', '=', 'a')
    .limit(5)
    .compile();
  expect(text).toMatch(/limit 5$/);
  expect(parameters).toEqual(['a']);
});

it('Database.tables does not read uncommitted rows', async () => {
  let counted: Promise<string[]> | undefined;
  await database
    .write(async (tables) => {
      await addRoom('a')(tables);
      counted = roomIds();
      await sql`select 1`.execute(tables);
      throw new Error('undo');
    })
    .catch(() => {});
  expect(await counted).toEqual([]);
});

it('GroupCommit waits for another process without blocking the event loop or readers', async () => {
  const other = new DatabaseSync(file);
  other.exec('begin immediate');
  const writing = database.write(addRoom('a'));
  let ticks = 0;
  for (let i = 0; i < 20; i++) {
    await new Promise((resolve) => setTimeout(resolve, 1));
    ticks += 1;
  }
  expect(ticks).toBe(20);
  expect(await roomIds()).toEqual([]);
  other.exec('commit');
  expect(await writing).toBe('a');
  other.close();
});

it('GroupCommit rejects what is submitted while it closes', async () => {
  const first = database.write(addRoom('a'));
  const closed = database.close();
  await expect(database.write(addRoom('b'))).rejects.toThrow('The store is closed');
  expect(await first).toBe('a');
  await closed;
});

it('GroupCommit rejects writes while too many wait', async () => {
  const results = await Promise.allSettled(
    Array.from({ length: 10_050 }, () => database.write(async () => 'written')),
  );
  const refused = results.filter(({ status }) => status === 'rejected');
  expect(refused).toHaveLength(50);
  expect(refused[0]).toMatchObject({ reason: { name: 'StoreError' } });
  expect(await database.write(addRoom('later'))).toBe('later');
});

it('Database.tables and Database.write let other events be handled between queries', async () => {
  for (const tables of [database.tables, undefined]) {
    let turns = 0;
    const timer = setInterval(() => {
      turns += 1;
    }, 1);
    const query = async (on: Database['tables']) => {
      const until = performance.now() + 60_000;
      while (turns < 3 && performance.now() < until)
        await on.selectFrom('rooms').select('id').execute();
    };
    await (tables ? query(tables) : database.write(query));
    clearInterval(timer);
    expect(turns).toBeGreaterThan(2);
  }
});
