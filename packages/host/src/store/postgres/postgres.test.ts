import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { sql } from 'kysely';
import pg from 'pg';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { createTestDatabase, useStore } from '../../../test/support/test-database.js';
import {
  createRunRequest,
  finishTestRun,
  openTestSession,
  startTestRun,
} from '../../../test/support/test-runs.js';
import { createIdSource } from '../database.js';
import { MessageStore } from '../message-store.js';
import { type DatabaseOptions, openDatabase } from '../open-database.js';
import { SessionStore } from '../session-store.js';
import { openStore } from '../store.js';
import { classifyStoreError } from '../store-errors.js';
import { MIGRATION_LOCK } from './postgres.js';

it('openStore opens as many PostgreSQL connections as poolSize allows', async () => {
  const database = await createTestDatabase('postgres');
  const store = await openStore({ ...database.options, poolSize: 3 });
  const admin = new pg.Client({ connectionString: database.options.databaseUrl });
  await admin.connect();
  const session = { owner: 'did:a', oracleDid: 'did:o' };
  await Promise.all(Array.from({ length: 30 }, () => store.sessions.create(session)));
  const { rows } = await admin.query(
    "select count(*)::int as n from pg_stat_activity where datname = current_database() and application_name = 'sibyl'",
  );
  expect(rows).toEqual([{ n: 3 }]);
  await admin.end();
  await store.close();
  await database.drop();
});

const session = { owner: 'did:a', oracleDid: 'did:o' };

it('openStore recovers after PostgreSQL has closed every connection', async () => {
  const database = await createTestDatabase('postgres');
  const lost: Error[] = [];
  const store = await openStore({ ...database.options, onConnectionLost: (e) => lost.push(e) });
  await Promise.all(Array.from({ length: 10 }, () => store.sessions.create(session)));
  const admin = new pg.Client({ connectionString: database.options.databaseUrl });
  await admin.connect();
  await admin.query(
    'select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()',
  );
  await admin.end();
  await expect.poll(() => lost.length).toBeGreaterThan(0);
  await vi.waitFor(() => store.ping(), { timeout: 60_000 });
  expect(await store.sessions.list({ owner: 'did:a', limit: 1, offset: 0 })).toMatchObject({
    total: 10,
  });
  await store.close();
  await database.drop();
});

it('openStore rejects while PostgreSQL is unreachable and recovers with it', async () => {
  const database = await createTestDatabase('postgres');
  const proxy = await startProxy(database.options.databaseUrl ?? '');
  const store = await openStore({ ...database.options, databaseUrl: proxy.url });
  await store.ping();
  await proxy.interrupt();
  await expect(store.ping()).rejects.toThrow();
  await expect(store.sessions.create(session)).rejects.toThrow();
  await proxy.restore();
  await vi.waitFor(() => store.ping(), { timeout: 60_000 });
  expect(await store.sessions.create(session)).toMatchObject(session);
  await store.close();
  await proxy.interrupt();
  await database.drop();
});

describe('the statements of openPostgres', () => {
  async function openNamed(
    choose: (own: DatabaseOptions) => Partial<DatabaseOptions> = () => ({}),
  ) {
    const { options: own, drop } = await createTestDatabase('postgres');
    const database = await openDatabase({ ...own, poolSize: 1, ...choose(own) });
    onTestFinished(async () => {
      await database.close();
      await drop();
    });
    const context = { database, clock: Date.now, newId: createIdSource(Date.now) };
    const countNames = async () => {
      const { rows } = await sql<{ name: string }>`select name from pg_prepared_statements`.execute(
        database.tables,
      );
      return rows.length;
    };
    return { context, database, countNames, sessions: new SessionStore(context) };
  }

  it('are prepared once they are used often, in limited numbers', async () => {
    const { database, countNames, sessions } = await openNamed();
    await sessions.create(session);
    expect(await countNames()).toBe(0);
    for (let i = 0; i < 10; i++) await sessions.find({ owner: 'did:a', sessionId: String(i) });
    expect(await countNames()).toBe(1);
    for (let length = 1; length <= 300; length++)
      for (let i = 0; i < 6; i++)
        await sql`select 1 where 0 in (${sql.join(Array(length).fill(0))})`.execute(
          database.tables,
        );
    expect(await countNames()).toBe(150);
  });

  it('work after another host has added a column', async () => {
    const { context, database, sessions } = await openNamed();
    const { sessionId: id } = await sessions.create(session);
    const messages = new MessageStore(context);
    const key = { owner: 'did:a', sessionId: id };
    const readAll = async () => {
      const all = sql`select * from sessions where owner = ${'did:a'}`.execute(database.tables);
      const found = await sessions.find(key);
      const { total } = await sessions.list({ owner: 'did:a', limit: 5, offset: 0 });
      await messages.recent({ ...key, branch: 0, throughTurn: 1, bytes: 10 });
      return [found?.sessionId, total, (await all).rows.length];
    };
    for (let i = 0; i < 10; i++) expect(await readAll()).toEqual([id, 1, 1]);
    await sql`alter table sessions add column later text`.execute(database.tables);
    await sql`alter table messages add column later text`.execute(database.tables);
    for (let i = 0; i < 10; i++) expect(await readAll()).toEqual([id, 1, 1]);
  });

  it('are not prepared through a pooler', async () => {
    const { countNames, sessions } = await openNamed(({ databaseUrl }) => ({
      databaseDirectUrl: databaseUrl,
    }));
    for (let i = 0; i < 10; i++) await sessions.find({ owner: 'did:a', sessionId: String(i) });
    expect(await countNames()).toBe(0);
  });
});

it('openDatabase says which process it waits for before it migrates, and waits for none if no step is missing', async () => {
  const { options, drop } = await createTestDatabase('postgres');
  onTestFinished(drop);
  const other = new pg.Client({
    connectionString: options.databaseUrl,
    application_name: 'another host',
  });
  await other.connect();
  const lock = async () => {
    await other.query('begin');
    await other.query(`select pg_advisory_xact_lock(${MIGRATION_LOCK})`);
  };
  const waits: string[] = [];
  const open = () => openDatabase({ ...options, onWait: (reason) => waits.push(reason) });
  await lock();
  const opening = open();
  await expect
    .poll(() => waits)
    .toEqual([
      expect.stringMatching(
        /^waiting to migrate the tables of Sibyl: process \d+ of PostgreSQL \(another host at 127\.0\.0\.1, since .*\) is migrating/,
      ),
    ]);
  await other.query('commit');
  await (await opening).close();
  await lock();
  await (await open()).close();
  expect(waits).toHaveLength(1);
  await other.end();
});

it('the transaction of a host that is frozen ends before the writes of other hosts fail', {
  timeout: 60_000,
}, async () => {
  const { options, drop } = await createTestDatabase('postgres');
  const [frozen, other] = [await openDatabase(options), await openDatabase(options)];
  const [locked, thawed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const query = sql`select 1`;
  const lost = frozen.writeFor('did:a', async (tables) => {
    await query.execute(tables);
    locked.resolve();
    await thawed.promise;
    await query.execute(tables);
  });
  lost.catch(() => undefined);
  await locked.promise;
  await other.writeFor('did:a', async (tables) => void (await query.execute(tables)));
  thawed.resolve();
  expect(await lost.catch(classifyStoreError)).toBe('passing');
  await Promise.all([frozen.close(), other.close()]);
  await drop();
});

it('writes that lock the same rows in another order both succeed', async () => {
  const database = await createTestDatabase('postgres');
  const store = await openDatabase(database.options);
  const newId = createIdSource(Date.now);
  const sessions = new SessionStore({ database: store, clock: Date.now, newId });
  const ids = [
    (await sessions.create(session)).sessionId,
    (await sessions.create(session)).sessionId,
  ] as const;
  const hasFirst = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const;
  const rename = (own: 0 | 1, id: string, title: string) =>
    store.write(async (tables) => {
      const update = (each: string) =>
        tables.updateTable('sessions').set({ title }).where('id', '=', each).execute();
      await update(id);
      hasFirst[own].resolve();
      await hasFirst[own === 0 ? 1 : 0].promise;
      await update(id === ids[0] ? ids[1] : ids[0]);
      return title;
    });
  const writes = [rename(0, ids[0], 'first'), rename(1, ids[1], 'second')];
  expect(await Promise.all(writes)).toEqual(['first', 'second']);
  const { sessions: listed } = await sessions.list({ owner: 'did:a', limit: 2, offset: 0 });
  expect(new Set(listed.map(({ title }) => title)).size).toBe(1);
  await store.close();
  await database.drop();
});

describe('a write for a session that is deleted at the same moment', () => {
  const test = useStore('postgres');
  const idempotency = { key: 'k', bodyHash: 'h', expiresAt: Date.now() + 60_000 };

  /** A session with a run that may be tried again. */
  async function openFailed() {
    const started = await startTestRun(test.store, { idempotency });
    const error = { code: 'model_unavailable', message: 'Later', retryAfterSeconds: 5 };
    await finishTestRun(test.store.runs, started.key, { status: 'failed', report: { error } });
    return started.session;
  }

  /** Deletes the session once the write waits for it. */
  async function deleteDuring<T>(
    { sessionId }: { readonly sessionId: string },
    write: () => Promise<T>,
  ): Promise<T> {
    const admin = new pg.Client({ connectionString: test.options.databaseUrl });
    await admin.connect();
    onTestFinished(() => admin.end());
    await admin.query('begin');
    await admin.query('delete from sessions where id = $1', [sessionId]);
    const writing = write();
    writing.catch(() => undefined);
    const waits = async () => {
      const { rows } = await admin.query(
        'select 1 from pg_stat_activity where pg_backend_pid() = any(pg_blocking_pids(pid))',
      );
      return rows.length;
    };
    await expect.poll(waits).toBe(1);
    await admin.query('commit');
    return writing;
  }

  it('is refused: the state of a plugin', async () => {
    const key = await openTestSession(test.store);
    const state = test.store.sessionState.of({ ...key, plugin: 'notes' });
    const writing = deleteDuring(key, () => state.set('key', 1));
    await expect(writing).rejects.toMatchObject({ code: 'session_not_found' });
  });

  it('is refused: feedback', async () => {
    const key = await openTestSession(test.store);
    const answer = { ...key, messageId: 'answer' };
    const writing = deleteDuring(key, () =>
      test.store.answerDetails.setFeedback(answer, { rating: 'up' }),
    );
    await expect(writing).rejects.toMatchObject({ code: 'session_not_found' });
  });

  it('is refused: the repetition of a message', async () => {
    const key = await openFailed();
    const request = createRunRequest({ ...key, idempotency });
    const repeated = await deleteDuring(key, () => test.store.runs.start(request));
    expect(repeated).toEqual({ state: 'unknown-session' });
  });
});

/** A proxy between the store and the server that can interrupt the connections. */
async function startProxy(target: string) {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect(Number(port || 5432), hostname);
    for (const socket of [client, upstream]) sockets.add(socket.on('error', () => {}));
    client.pipe(upstream).pipe(client);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const ownPort = typeof address === 'object' && address ? address.port : 0;
  const url = new URL(target);
  url.host = `127.0.0.1:${ownPort}`;
  return {
    url: url.href,
    interrupt: async () => {
      server.close();
      for (const socket of sockets) socket.destroy();
      await once(server, 'close');
    },
    restore: async () => {
      server.listen(ownPort, '127.0.0.1');
      await once(server, 'listening');
    },
  };
}

it('Database.estimateDelay says how long a connection is waited for', async () => {
  const { options, drop } = await createTestDatabase('postgres');
  const database = await openDatabase({ ...options, poolSize: 2 });
  onTestFinished(async () => {
    await database.close();
    await drop();
  });
  const use = (seconds: number) =>
    database.read((tables) => sql`select pg_sleep(${seconds}::float8)`.execute(tables));
  const inUse = [use(2), use(2)];
  expect(database.estimateDelay()).toBeLessThan(500);
  const waiting = use(0);
  await expect.poll(() => database.estimateDelay()).toBeGreaterThan(500);
  await waiting;
  expect(database.estimateDelay()).toBe(0);
  await Promise.all(inUse);
  // As long as each use of a connection has taken.
  await Promise.all(Array.from({ length: 100 }, () => use(0.02)));
  const all = Array.from({ length: 60 }, () => use(0.02));
  const startedAt = performance.now();
  const estimate = database.estimateDelay();
  await Promise.all(all);
  const took = performance.now() - startedAt;
  expect(estimate).toBeGreaterThan(took / 4);
  expect(estimate).toBeLessThan(took * 4);
});
