import { type Kysely, sql } from 'kysely';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { joinForTest } from '../../test/support/cluster.js';
import { findFreePort } from '../../test/support/free-port.js';
import { startHost } from '../../test/support/host.js';
import { startPgBouncer } from '../../test/support/pgbouncer.js';
import { createTestDatabase, type TestDatabase } from '../../test/support/test-database.js';
import { TestUser } from '../../test/support/user.js';
import { openDatabase } from '../store/open-database.js';
import type { Schema } from '../store/schema/index.js';

let database: TestDatabase;
let url: string;
beforeEach(async () => {
  database = await createTestDatabase('postgres');
  url = database.options.databaseUrl ?? '';
});
afterEach(() => database.drop());

describe('joinCluster behind PgBouncer', () => {
  it('refuses transaction mode and names DATABASE_DIRECT_URL', async () => {
    const pooled = await startPgBouncer(url, 'transaction');
    const { dataDir } = database.options;
    const REFUSAL = /DATABASE_URL .*PgBouncer in transaction mode.*Set DATABASE_DIRECT_URL/s;
    await expect(joinForTest({ databaseUrl: pooled, dataDir })).rejects.toThrow(REFUSAL);
    // The direct address is the one that counts.
    const swapped = { databaseUrl: url, databaseDirectUrl: pooled, dataDir };
    await expect(joinForTest(swapped)).rejects.toThrow(/DATABASE_DIRECT_URL \(host\): connects/);
    await expect(startHost({ env: { ...database.env, DATABASE_URL: pooled } })).rejects.toThrow(
      REFUSAL,
    );
  });

  it('accepts session mode', async () => {
    const pooled = await startPgBouncer(url, 'session');
    const { dataDir } = database.options;
    const [a, b] = [
      await joinForTest({ databaseUrl: pooled, dataDir }),
      await joinForTest({ databaseUrl: url, dataDir }),
    ];
    const all = [a.hostId, b.hostId, 'none'];
    await expect.poll(() => b.liveness.findDeadHosts(all)).toEqual(['none']);
    await a.close();
    await expect.poll(() => b.liveness.findDeadHosts(all)).toEqual([a.hostId, 'none']);
  });

  it('serves a host whose store uses transaction mode, with DATABASE_DIRECT_URL', async () => {
    const pooled = await startPgBouncer(url, 'transaction');
    const env = { ...database.env, DATABASE_URL: pooled, DATABASE_DIRECT_URL: url };
    const host = await startHost({ env });
    onTestFinished(() => host.close());
    const alice = new TestUser(host);
    const created = await alice.request('POST', '/sessions');
    expect(created.status).toBe(201);
  });

  it('serves a host whose store uses session mode, with the same DATABASE_DIRECT_URL', async () => {
    const pooled = await startPgBouncer(url, 'session');
    const env = { ...database.env, DATABASE_URL: pooled };
    await expect(startHost({ env })).rejects.toThrow(
      /startup parameter.*this is a pooler.*set DATABASE_DIRECT_URL/,
    );
    const host = await startHost({ env: { ...env, DATABASE_DIRECT_URL: pooled } });
    onTestFinished(() => host.close());
    const created = await new TestUser(host).request('POST', '/sessions');
    expect(created.status).toBe(201);
  });

  it('gives transactions their time limits, which PgBouncer does not take from a connection', async () => {
    const pooled = await startPgBouncer(url, 'transaction');
    const opened = await openDatabase({
      ...database.options,
      databaseUrl: pooled,
      databaseDirectUrl: url,
    });
    onTestFinished(() => opened.close());
    const readLimits = async (tables: Kysely<Schema>) => {
      const { rows } = await sql<{ statement: string; idle: string }>`
        select current_setting('statement_timeout') as statement,
          current_setting('idle_in_transaction_session_timeout') as idle`.execute(tables);
      return rows[0];
    };
    const limits = { statement: '30s', idle: '8s' };
    expect(await opened.write(readLimits)).toEqual(limits);
    expect(await opened.writeFor('did:key:alice', readLimits)).toEqual(limits);
    expect(await opened.read(readLimits)).toEqual(limits);
  });
});

it('joinCluster names the variable of an address that cannot be reached', async () => {
  const { dataDir } = database.options;
  const databaseDirectUrl = `postgres://sibyl@127.0.0.1:${await findFreePort()}/none`;
  await expect(joinForTest({ databaseUrl: url, databaseDirectUrl, dataDir })).rejects.toThrow(
    /DATABASE_DIRECT_URL \(host\): cannot connect: .*ECONNREFUSED/,
  );
});
