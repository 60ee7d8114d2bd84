import { randomUUID } from 'node:crypto';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import pg from 'pg';
import { describe, expect, inject, it, onTestFinished, vi } from 'vitest';
import { scale } from '../../../../scripts/test-scale.ts';
import { createTestDatabase, engines, useStore } from '../../test/support/test-database.js';
import { openStore, type StoreOptions, WriteProbe } from './store.js';

const secretKey = new Uint8Array(32).fill(7);

function newDir(): string {
  const path = mkdtempSync(join(tmpdir(), 'sibyl-open-'));
  onTestFinished(() => rmSync(path, { recursive: true }));
  return path;
}

function readMode(path: string): string {
  return (statSync(path).mode & 0o777).toString(8);
}

describe.each(engines)('openStore on %s', (engine) => {
  it('migrates a new database that several processes open at the same time', async () => {
    const database = await createTestDatabase(engine);
    const opening = Array.from({ length: scale(10, 3) }, () => openStore(database.options));
    const stores = await Promise.all(opening);
    await Promise.all(stores.map((store) => store.ping()));
    await Promise.all(stores.map((store) => store.close()));
    await database.drop();
  });

  it('keeps existing data', async () => {
    const database = await createTestDatabase(engine);
    const first = await openStore(database.options);
    const session = await first.sessions.create({ owner: 'did:a', oracleDid: 'did:o' });
    await first.close();
    const second = await openStore(database.options);
    expect(await second.sessions.find({ owner: 'did:a', sessionId: session.sessionId })).toEqual(
      session,
    );
    await second.close();
    await database.drop();
  });

  it('rejects a database of a newer version', async () => {
    const database = await createTestDatabase(engine);
    await (await openStore(database.options)).close();
    await execute(
      database.options,
      "insert into kysely_migration (name, timestamp) values ('9999-later', '2999-01-01T00:00:00.000Z')",
    );
    await expect(openStore(database.options)).rejects.toThrow(
      /written by a newer Sibyl.*9999-later.*upgrade/,
    );
    await database.drop();
  });

  it('Store.close waits for writes in progress', async () => {
    const database = await createTestDatabase(engine);
    const store = await openStore(database.options);
    const writes = Array.from({ length: 20 }, () =>
      store.sessions.create({ owner: 'did:a', oracleDid: 'did:o' }),
    );
    const [closed] = await Promise.all([store.close(), ...writes]);
    expect(closed).toBeUndefined();
    await expect(store.ping()).rejects.toThrow();
    await database.drop();
  });

  async function execute({ databaseUrl, dataDir }: StoreOptions, statement: string) {
    if (databaseUrl === undefined) {
      const handle = new DatabaseSync(join(dataDir, 'sibyl.db'));
      handle.exec(statement);
      return handle.close();
    }
    const client = new pg.Client({ connectionString: databaseUrl });
    await client.connect();
    await client.query(statement);
    await client.end();
  }
});

describe('the SQLite files of openStore', () => {
  it('are readable only by this user', async () => {
    const dataDir = join(newDir(), 'new', 'data');
    const store = await openStore({ dataDir, secretKey });
    await store.sessions.create({ owner: 'did:a', oracleDid: 'did:o' });
    expect(readMode(dataDir)).toBe('700');
    const modes = readdirSync(dataDir).map((file) => [file, readMode(join(dataDir, file))]);
    expect(Object.fromEntries(modes)).toEqual({
      'sibyl.db': '600',
      'sibyl.db-wal': '600',
      'sibyl.db-shm': '600',
    });
    await store.close();
  });

  it('get stricter modes, while the directory keeps its own', async () => {
    const dataDir = newDir();
    chmodSync(dataDir, 0o755);
    writeFileSync(join(dataDir, 'sibyl.db'), '', { mode: 0o644 });
    await (await openStore({ dataDir, secretKey })).close();
    expect(readMode(join(dataDir, 'sibyl.db'))).toBe('600');
    expect(readMode(dataDir)).toBe('755');
  });
});

describe('openStore that fails', () => {
  it('describes a valid DATABASE_URL, without repeating the invalid one', async () => {
    for (const databaseUrl of ['mysql://u:secret@h/d', 'secret', '/var/secret.db']) {
      const opening = openStore({ databaseUrl, dataDir: newDir(), secretKey });
      await expect(opening).rejects.toThrow(/^DATABASE_URL must start with postgres:\/\//);
      await expect(opening).rejects.not.toThrow('secret');
    }
  });

  it('names the host and port of an unreachable PostgreSQL, never the password', async () => {
    const port = await closedPort();
    const databaseUrl = `postgres://user:sesame@127.0.0.1:${port}/db`;
    const opening = openStore({ databaseUrl, dataDir: newDir(), secretKey });
    await expect(opening).rejects.toThrow(`Cannot open PostgreSQL at 127.0.0.1:${port}`);
    await expect(opening).rejects.not.toThrow(/sesame|\n/);
    await expect(
      openStore({ databaseUrl: 'postgres://u:sesame@[bad/db', dataDir: newDir(), secretKey }),
    ).rejects.toThrow('DATABASE_URL is not a valid URL');
  });

  it('names the missing database', async () => {
    const postgres = inject('postgres');
    if ('fault' in postgres) throw new Error(postgres.fault);
    const url = new URL(postgres.url);
    url.pathname = `/missing_${randomUUID()}`;
    const opening = openStore({ databaseUrl: url.href, dataDir: newDir(), secretKey });
    await expect(opening).rejects.toThrow(/Cannot open PostgreSQL.*missing_.*does not exist/);
  });

  it('names a file that cannot be created', async () => {
    const dataDir = newDir();
    mkdirSync(join(dataDir, 'sibyl.db'));
    await expect(openStore({ dataDir, secretKey })).rejects.toThrow(/Cannot open.*DATA_DIR/);
    const garbage = newDir();
    writeFileSync(join(garbage, 'sibyl.db'), 'not a database'.repeat(1_000));
    await expect(openStore({ dataDir: garbage, secretKey })).rejects.toThrow(/not a database/);
  });
});

async function closedPort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === 'object' && address ? address.port : 1;
}

it('WriteProbe writes once for all checks within a second', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  onTestFinished(() => void vi.useRealTimers());
  let writes = 0;
  const probe = new WriteProbe({
    probeWrite: async () => {
      writes += 1;
    },
  });
  const results = await Promise.all(Array.from({ length: 1_000 }, () => probe.check()));
  expect(new Set(results)).toEqual(new Set(['writable']));
  vi.advanceTimersByTime(999);
  expect(await probe.check()).toBe('writable');
  expect(writes).toBe(1);
  vi.advanceTimersByTime(1);
  expect(await probe.check()).toBe('writable');
  expect(writes).toBe(2);
});

it('WriteProbe does not wait for a write that hangs, and starts no second one', async () => {
  let writes = 0;
  const probe = new WriteProbe({
    probeWrite: () => {
      writes += 1;
      return new Promise(() => {});
    },
  });
  expect(await Promise.all([probe.check(), probe.check()])).toEqual(['timeout', 'timeout']);
  expect(await probe.check()).toBe('timeout');
  expect(writes).toBe(1);
});

it.each([
  [Object.assign(new Error('full'), { code: 'ERR_SQLITE_ERROR', errcode: 13 }), 'full'],
  [Object.assign(new Error('refused'), { code: 'ECONNREFUSED' }), 'passing'],
  [new Error('a bug'), 'unknown-error'],
])('WriteProbe reports %s as %s', async (error, result) => {
  expect(await new WriteProbe({ probeWrite: () => Promise.reject(error) }).check()).toBe(result);
});

it.each(engines)('probeWrite writes to %s and leaves nothing behind', async (engine) => {
  const { store } = databases[engine];
  await Promise.all(Array.from({ length: 20 }, () => store.probeWrite()));
  expect(await store.idempotency.prune()).toBe(0);
  await store.close();
  await expect(store.probeWrite()).rejects.toThrow();
});

const databases = { sqlite: useStore('sqlite'), postgres: useStore('postgres') };
