import { mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import pg from 'pg';
import { describe, expect, inject, it, onTestFinished } from 'vitest';
import { StoreError } from './database/store-error.js';
import { classifyStoreFault } from './store-fault.js';

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

describe('classifyStoreFault', () => {
  it('knows a full SQLite file', () => {
    const database = newDatabase(newFile(), 0);
    database.exec('pragma max_page_count = 2');
    const insert = () => database.exec(`insert into t values ('${'x'.repeat(100_000)}')`);
    expect(classifyStoreFault(catchError(insert))).toBe('full');
  });

  it('knows a SQLite file that cannot be written', () => {
    const path = newFile();
    newDatabase(path, 0).close();
    const database = new DatabaseSync(path, { readOnly: true });
    expect(classifyStoreFault(catchError(() => database.exec('delete from t')))).toBe('lasting');
  });

  it('knows a file that is not a SQLite database', () => {
    const path = newFile();
    writeFileSync(path, 'not a database'.repeat(1_000));
    const database = new DatabaseSync(path);
    expect(classifyStoreFault(catchError(() => database.exec('select * from t')))).toBe('lasting');
  });

  it('knows a corrupt SQLite file', () => {
    const path = newFile();
    newDatabase(path, 100).close();
    const file = openSync(path, 'r+');
    writeSync(file, Buffer.alloc(40_000, 0xa5), 0, 40_000, 4096);
    const database = new DatabaseSync(path);
    const read = () => database.prepare('select count(v) from t').all();
    expect(classifyStoreFault(catchError(read))).toBe('lasting');
  });

  it('knows the errors of a pg client whose connection broke, the second one too', async () => {
    const postgres = inject('postgres');
    if ('fault' in postgres) throw new Error(postgres.fault);
    const client = new pg.Client({ connectionString: postgres.url });
    client.on('error', () => {});
    await client.connect();
    const broken = client.query('select pg_terminate_backend(pg_backend_pid()), pg_sleep(10)');
    const ended = new Promise((resolve) => client.once('end', resolve));
    const first = await broken.catch((error) => error);
    expect(classifyStoreFault(first)).toBe('passing');
    await ended;
    const second = await client.query('select 1').catch((error) => error);
    expect(second.message).toMatch(/not queryable/);
    expect(classifyStoreFault(second)).toBe('passing');
  });

  it.each(['53100', '25006', '57014', '40P01', '28P01', '08006'])(
    'knows the PostgreSQL error %s',
    (code) => {
      expect(classifyStoreFault(Object.assign(new Error('x'), { code }))).toBeDefined();
    },
  );

  it('leaves bugs alone', () => {
    const database = newDatabase(newFile(), 0);
    expect(classifyStoreFault(catchError(() => database.exec('selec')))).toBeUndefined();
    expect(classifyStoreFault(Object.assign(new Error('x'), { code: '42P01' }))).toBeUndefined();
    expect(classifyStoreFault(new TypeError('x is not a function'))).toBeUndefined();
    expect(classifyStoreFault('text')).toBeUndefined();
    expect(classifyStoreFault(new StoreError('x'))).toBe('passing');
  });
});
