import { mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import pg from 'pg';
import { afterEach, beforeEach, describe, expect, inject, it, onTestFinished, vi } from 'vitest';
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

beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }));
afterEach(() => void vi.useRealTimers());

const full = Object.assign(new Error('full'), { code: 'ERR_SQLITE_ERROR', errcode: 13 });

function newOutage() {
  const lines: string[] = [];
  const write = (fields: object, text: string) =>
    void lines.push(`${text.slice(0, 25)} ${'failures' in fields ? fields.failures : ''}`.trim());
  return { lines, outage: new StoreOutage({ error: write, info: write } as never) };
}

it('StoreOutage logs once while small writes succeed between others that fail', () => {
  const { lines, outage } = newOutage();
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
  const { lines, outage } = newOutage();
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
