import { mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import pg from 'pg';
import { afterEach, beforeEach, describe, expect, inject, it, onTestFinished, vi } from 'vitest';
import { createTestDatabase } from '../../test/support/test-database.js';
import type { Database } from './database.js';
import { openDatabase } from './open-database.js';
import { classifyStoreError, repeatRead, StoreError, StoreOutage } from './store-errors.js';

function newFile(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sibyl-fault-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return join(folder, 'x.db');
}

function newDatabase(path: string, rows: number): DatabaseSync {
  const database = new DatabaseSync(path);
  database.exec('create table t (v text)');
  for (let i = 0; i < rows; i++) database.exec(`insert into t values ('${'x'.repeat(1000)}')`);
  return database;
}

function catchError(action: () => unknown): unknown {
  try {
    action();
  } catch (error) {
    return error;
  }
  throw new Error('it did not fail');
}

describe('classifyStoreError', () => {
  it('recognizes a full SQLite file', () => {
    const database = newDatabase(newFile(), 0);
    database.exec('pragma max_page_count = 2');
    const insert = () => database.exec(`insert into t values ('${'x'.repeat(100_000)}')`);
    expect(classifyStoreError(catchError(insert))).toBe('full');
  });

  it('recognizes a SQLite file that cannot be written', () => {
    const path = newFile();
    newDatabase(path, 0).close();
    const database = new DatabaseSync(path, { readOnly: true });
    expect(classifyStoreError(catchError(() => database.exec('delete from t')))).toBe('lasting');
  });

  it('recognizes a file that is not a SQLite database', () => {
    const path = newFile();
    writeFileSync(path, 'not a database'.repeat(1_000));
    const database = new DatabaseSync(path);
    expect(classifyStoreError(catchError(() => database.exec('select * from t')))).toBe('lasting');
  });

  it('recognizes a corrupt SQLite file', () => {
    const path = newFile();
    newDatabase(path, 100).close();
    const file = openSync(path, 'r+');
    writeSync(file, Buffer.alloc(40_000, 0xa5), 0, 40_000, 4096);
    const database = new DatabaseSync(path);
    const read = () => database.prepare('select count(v) from t').all();
    expect(classifyStoreError(catchError(read))).toBe('lasting');
  });

  it('recognizes the errors of a pg client whose connection is lost, also the second one', async () => {
    const postgres = inject('postgres');
    if ('fault' in postgres) throw new Error(postgres.fault);
    const client = new pg.Client({ connectionString: postgres.url });
    client.on('error', () => {});
    await client.connect();
    const broken = client.query('select pg_terminate_backend(pg_backend_pid()), pg_sleep(10)');
    const ended = new Promise((resolve) => client.once('end', resolve));
    const first = await broken.catch((error) => error);
    expect(classifyStoreError(first)).toBe('passing');
    await ended;
    const second = await client.query('select 1').catch((error) => error);
    expect(second.message).toMatch(/not queryable/);
    expect(classifyStoreError(second)).toBe('passing');
  });

  it.each(['53100', '25006', '57014', '40P01', '28P01', '08006'])(
    'knows the PostgreSQL error %s',
    (code) => {
      expect(classifyStoreError(Object.assign(new Error('x'), { code }))).toBeDefined();
    },
  );

  it('ignores bugs', () => {
    const database = newDatabase(newFile(), 0);
    expect(classifyStoreError(catchError(() => database.exec('selec')))).toBeUndefined();
    expect(classifyStoreError(Object.assign(new Error('x'), { code: '42P01' }))).toBeUndefined();
    expect(classifyStoreError(new TypeError('x is not a function'))).toBeUndefined();
    expect(classifyStoreError('text')).toBeUndefined();
    expect(classifyStoreError(new StoreError('x'))).toBe('passing');
  });
});

const QUIET_MS = 5_000;
const NOW = Date.UTC(2026, 0, 1);

beforeEach(() => {
  vi.useFakeTimers({ now: NOW, toFake: ['performance', 'setInterval', 'clearInterval', 'Date'] });
});
afterEach(() => void vi.useRealTimers());

const full = Object.assign(new Error('full'), { code: 'ERR_SQLITE_ERROR', errcode: 13 });

function recordOutage() {
  const lines: string[] = [];
  const write = (fields: object, text: string) =>
    void lines.push(`${text.slice(0, 25)} ${'failures' in fields ? fields.failures : ''}`.trim());
  return { lines, outage: new StoreOutage({ error: write, info: write } as never) };
}

it('StoreOutage logs once while small writes succeed between others that fail', () => {
  const { lines, outage } = recordOutage();
  for (let i = 0; i < 100; i++) {
    outage.failed(full);
    vi.advanceTimersByTime(1_000);
    outage.succeeded();
  }
  expect(lines).toEqual(['the store is unavailable;']);
  vi.advanceTimersByTime(4_000);
  outage.succeeded();
  outage.succeeded();
  expect(lines).toEqual(['the store is unavailable;', 'the store is available ag 100']);
  outage.failed(full);
  expect(lines).toHaveLength(3);
});

it('StoreOutage ignores bugs', () => {
  const { lines, outage } = recordOutage();
  outage.failed(new TypeError('x is undefined'));
  expect(lines).toEqual([]);
});

describe('repeatRead', () => {
  const away = Object.assign(new Error('starting'), { code: '57P03' });
  const fail = (error: unknown) => vi.fn(() => Promise.reject(error));
  const { signal } = new AbortController();

  it('fails if the database stays away', async () => {
    vi.useRealTimers();
    const read = fail(away);
    await expect(repeatRead(read, { waitMs: 350, signal })).rejects.toBe(away);
    expect(read.mock.calls.length).toBeGreaterThan(1);
  });

  it('does not repeat after a bug, or once its caller has left', async () => {
    const bug = new TypeError('x is undefined');
    const broken = fail(bug);
    await expect(repeatRead(broken, { waitMs: 10_000, signal })).rejects.toBe(bug);
    const unneeded = fail(away);
    const aborted = { waitMs: 10_000, signal: AbortSignal.abort() };
    await expect(repeatRead(unneeded, aborted)).rejects.toBe(away);
    for (const read of [broken, unneeded]) expect(read).toHaveBeenCalledOnce();
  });
});

const createFull = (message = 'the disk is full') =>
  Object.assign(new Error(message), { code: 'ENOSPC' });

function newOutage() {
  const logger = { error: vi.fn(), info: vi.fn() };
  const outage = new StoreOutage(logger);
  onTestFinished(() => outage.close());
  return { outage, logger };
}

async function openTestDatabase(): Promise<Database> {
  const { options, drop } = await createTestDatabase('sqlite');
  const database = await openDatabase(options);
  onTestFinished(async () => {
    await database.close();
    await drop();
  });
  return database;
}

describe('StoreOutage', () => {
  it('counts failures by kind, and ignores bugs', () => {
    const { outage, logger } = newOutage();
    outage.failed(new TypeError('x is undefined'));
    expect(outage.current).toBeUndefined();
    expect(outage.counts).toEqual({ passing: 0, full: 0, lasting: 0 });
    expect(logger.error).not.toHaveBeenCalled();
    outage.failed(createFull());
    outage.failed(new StoreError('locked'));
    outage.failed(new StoreError('locked'));
    outage.failed(Object.assign(new Error('x'), { code: 'ERR_SQLITE_ERROR', errcode: 11 }));
    expect(outage.counts).toEqual({ passing: 2, full: 1, lasting: 1 });
    expect(logger.error).toHaveBeenCalledOnce();
  });

  it('says since when, how often and why', () => {
    const { outage } = newOutage();
    expect(outage.current).toBeUndefined();
    vi.advanceTimersByTime(1_000);
    outage.failed(createFull('first'));
    vi.advanceTimersByTime(2_000);
    expect(outage.current).toEqual({ since: new Date(NOW + 1_000), failures: 1, reason: 'first' });
    outage.failed(new StoreError('second'));
    vi.advanceTimersByTime(500);
    expect(outage.current).toEqual({ since: new Date(NOW + 1_000), failures: 2, reason: 'second' });
  });

  it('shortens a long reason, and uses the first of several errors', () => {
    const { outage } = newOutage();
    const fail = (error: Error) => {
      outage.failed(error);
      return outage.current?.reason;
    };
    expect(fail(createFull('x'.repeat(400)))).toBe('x'.repeat(300));
    const code = { code: 'ECONNREFUSED' };
    const errors = [new Error('address one'), new Error('address two')];
    expect(fail(Object.assign(new AggregateError(errors), code))).toBe('address one');
    expect(fail(Object.assign(new AggregateError(['a text']), code))).toBe('a text');
    expect(fail(Object.assign(new AggregateError([], 'none'), code))).toBe('none');
    expect(fail(Object.assign(new Error('no list'), code, { errors: 'x' }))).toBe('no list');
  });

  it('ends after five seconds without a failure, at the next success', () => {
    const { outage, logger } = newOutage();
    outage.failed(createFull());
    vi.advanceTimersByTime(QUIET_MS - 1);
    outage.succeeded();
    outage.failed(createFull());
    vi.advanceTimersByTime(QUIET_MS - 1);
    outage.succeeded();
    expect(outage.current).toBeDefined();
    expect(logger.info).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1);
    outage.succeeded();
    outage.succeeded();
    expect(outage.current).toBeUndefined();
    expect(logger.info).toHaveBeenCalledOnce();
    // Between the first and the last failure.
    expect(logger.info).toHaveBeenCalledWith({ failures: 2, seconds: 5 }, expect.any(String));
    expect(outage.counts.full).toBe(2);
  });

  it('logs each outage once, with its error', () => {
    const { outage, logger } = newOutage();
    const [first, second] = [createFull('first'), createFull('second')];
    outage.failed(first);
    outage.failed(createFull('another'));
    vi.advanceTimersByTime(QUIET_MS);
    outage.succeeded();
    outage.failed(second);
    const logged = logger.error.mock.calls.map(([fields]) => fields);
    expect(logged).toEqual([{ err: first }, { err: second }]);
    expect(outage.current).toMatchObject({ failures: 1 });
  });
});

describe('StoreOutage.watch', () => {
  const fail = async () => {
    throw createFull();
  };
  const succeed = async () => 'value';

  /** So that only what a test does ends the outage. */
  const hang = () => new Promise<void>(() => {});

  async function watch(probe: () => Promise<void> = async () => {}) {
    const { outage } = newOutage();
    const probed = vi.fn(probe);
    const database = await openTestDatabase();
    return { outage, probed, database, watched: outage.watch(database, probed) };
  }

  it('observes writes that fail, and rejects with their errors', async () => {
    const { outage, watched } = await watch();
    await expect(watched.write(fail)).rejects.toThrow('the disk is full');
    await expect(watched.writeFor('did:key:zOwner', fail)).rejects.toThrow('the disk is full');
    expect(outage.current).toMatchObject({ failures: 2 });
  });

  it.each(['write', 'writeFor'] as const)('a success of %s ends an outage', async (name) => {
    const { outage, watched } = await watch(hang);
    outage.failed(createFull());
    vi.advanceTimersByTime(QUIET_MS);
    const committed: string[] = [];
    const result =
      name === 'write'
        ? watched.write(succeed)
        : watched.writeFor('did:key:zOwner', succeed, {
            onCommit: (value) => committed.push(value),
          });
    expect(await result).toBe('value');
    expect(outage.current).toBeUndefined();
    expect(committed).toEqual(name === 'write' ? [] : ['value']);
  });

  it('a read does not end an outage', async () => {
    const { outage, watched } = await watch(hang);
    outage.failed(createFull());
    vi.advanceTimersByTime(QUIET_MS);
    expect(await watched.read(succeed)).toBe('value');
    await watched.tables.selectFrom('rooms').select('id').execute();
    expect(outage.current).toBeDefined();
  });

  it('writes every five seconds during an outage, until a write succeeds', async () => {
    let isFull = true;
    const probe = async () => {
      if (isFull) throw createFull();
    };
    const { outage, probed, database } = await watch(probe);
    await vi.advanceTimersByTimeAsync(10 * QUIET_MS);
    expect(probed).not.toHaveBeenCalled();
    outage.failed(createFull());
    await vi.advanceTimersByTimeAsync(QUIET_MS - 1);
    expect(probed).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(1);
    expect(probed).toHaveBeenCalledExactlyOnceWith(database);
    expect(outage.current).toMatchObject({ failures: 2 });
    isFull = false;
    await vi.advanceTimersByTimeAsync(QUIET_MS);
    expect(outage.current).toBeUndefined();
    await vi.advanceTimersByTimeAsync(10 * QUIET_MS);
    expect(probed).toHaveBeenCalledTimes(2);
  });

  it('writes nothing after it was closed, whether an outage began before or after', async () => {
    const { outage, probed } = await watch();
    outage.failed(createFull());
    outage.close();
    await vi.advanceTimersByTimeAsync(10 * QUIET_MS);
    expect(probed).not.toHaveBeenCalled();
    const later = await watch();
    later.outage.close();
    later.outage.failed(createFull());
    await vi.advanceTimersByTimeAsync(10 * QUIET_MS);
    expect(later.probed).not.toHaveBeenCalled();
    expect(later.outage.current).toMatchObject({ failures: 1 });
  });
});
