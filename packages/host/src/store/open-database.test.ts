import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import pg from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';
import { startHost } from '../../test/support/host.js';
import { createTestDatabase, type Engine, engines } from '../../test/support/test-database.js';
import { probeDatabase } from './open-database.js';
import { openStore, type StoreOptions } from './store.js';

async function newDatabase(engine: Engine): Promise<StoreOptions> {
  const { options, drop } = await createTestDatabase(engine);
  onTestFinished(drop);
  return options;
}

async function execute(
  { databaseUrl, dataDir }: StoreOptions,
  statement: string,
): Promise<unknown[]> {
  if (databaseUrl === undefined) {
    const handle = new DatabaseSync(join(dataDir, 'sibyl.db'));
    const rows = handle.prepare(statement).all();
    handle.close();
    return rows;
  }
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  const { rows } = await client.query(statement);
  await client.end();
  return rows;
}

describe.each(engines)('probeDatabase on %s', (engine) => {
  it('creates no database', async () => {
    const options = await newDatabase(engine);
    const state = engine === 'sqlite' ? 'absent' : 'behind';
    expect(await probeDatabase(options)).toBe(state);
    expect(await probeDatabase(options)).toBe(state);
    expect(readdirSync(options.dataDir)).toEqual([]);
  });

  it('finds a migrated database, in use or not, and creates no file', async () => {
    const options = await newDatabase(engine);
    const store = await openStore(options);
    expect(await probeDatabase(options)).toBe('ready');
    await store.close();
    const files = readdirSync(options.dataDir);
    expect(await probeDatabase(options)).toBe('ready');
    expect(readdirSync(options.dataDir)).toEqual(files);
  });

  it('does not migrate a database', async () => {
    const options = await newDatabase(engine);
    await (await openStore(options)).close();
    await execute(options, 'delete from kysely_migration');
    expect(await probeDatabase(options)).toBe('behind');
    expect(await execute(options, 'select name from kysely_migration')).toEqual([]);
  });

  it('rejects a database of a newer version', async () => {
    const options = await newDatabase(engine);
    await (await openStore(options)).close();
    await execute(
      options,
      "insert into kysely_migration (name, timestamp) values ('9999-later', '2999-01-01T00:00:00.000Z')",
    );
    await expect(probeDatabase(options)).rejects.toThrow(/written by a newer Sibyl.*9999-later/);
  });
});

describe.each(engines)('openStore with an oracle on %s', (engine) => {
  const open = (options: StoreOptions, oracleDid: string) => openStore({ ...options, oracleDid });

  it('rejects the database of another oracle, and says what to do', async () => {
    const options = await newDatabase(engine);
    await (await open(options, 'did:key:zFirst')).close();
    await expect(open(options, 'did:key:zOther')).rejects.toThrow(
      /belongs to the oracle did:key:zFirst, but this host is did:key:zOther\..*DATABASE_URL or DATA_DIR/,
    );
    await (await open(options, 'did:key:zFirst')).close();
  });

  it('belongs to one of two oracles that start together', async () => {
    const options = await newDatabase(engine);
    const oracles = Array.from({ length: 6 }, (_, i) => `did:key:z${i % 2}`);
    const opened = await Promise.allSettled(oracles.map((did) => open(options, did)));
    const stores = opened.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
    await Promise.all(stores.map((store) => store.close()));
    expect(stores).toHaveLength(3);
    const rows = await execute(options, 'select value from database_info');
    expect(oracles.filter((_, i) => opened[i]?.status === 'fulfilled')).toEqual(
      Array(3).fill((rows[0] as { value: string }).value),
    );
  });
});

it('createOracleApp does not start on the database of another oracle', async () => {
  const database = await createTestDatabase('postgres');
  onTestFinished(database.drop);
  const env = { DATABASE_URL: database.env.DATABASE_URL ?? '' };
  const first = await startHost({ env });
  onTestFinished(first.close);
  await expect(startHost({ env })).rejects.toThrow(`belongs to the oracle ${first.did}`);
});

it('probeDatabase names a file that is not a database', async () => {
  const options = await newDatabase('sqlite');
  const path = join(options.dataDir, 'sibyl.db');
  writeFileSync(path, 'not a database at all, but long enough to be taken for one\n'.repeat(20));
  await expect(probeDatabase(options)).rejects.toThrow(`${path}: file is not a database`);
});

it('probeDatabase names a file that another program has locked', async () => {
  const options = await newDatabase('sqlite');
  await (await openStore(options)).close();
  const other = new DatabaseSync(join(options.dataDir, 'sibyl.db'));
  onTestFinished(() => other.close());
  other.exec('begin immediate');
  await expect(probeDatabase(options)).rejects.toThrow(/another program|locked/);
});
