import { readdirSync, readlinkSync, realpathSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { expect, it, onTestFinished } from 'vitest';
import { createTestDatabase } from '../../test/support/test-database.js';
import { type DatabaseOptions, openDatabase, probeDatabase } from './open-database.js';
import { toSqlitePath } from './sqlite/sqlite.js';
import { StoreError } from './store-errors.js';

const FIRST = 'did:key:zFirst';
const SECOND = 'did:key:zSecond';

async function newOptions(): Promise<DatabaseOptions> {
  const { options, drop } = await createTestDatabase('sqlite');
  onTestFinished(drop);
  return options;
}

async function open(options: DatabaseOptions, oracleDid?: string) {
  const database = await openDatabase({ ...options, oracleDid });
  onTestFinished(() => database.close());
  return database;
}

function readClaims({ dataDir }: DatabaseOptions): unknown[] {
  const handle = new DatabaseSync(toSqlitePath(dataDir), { readOnly: true });
  const rows = handle.prepare("select value from database_info where key = 'oracle_did'").all();
  handle.close();
  return rows.map(({ value }) => value);
}

/** How many files of the database this process has open. */
function countOpenFiles({ dataDir }: DatabaseOptions): number {
  const folder = realpathSync(dataDir);
  const isOwn = (descriptor: string) => {
    try {
      return readlinkSync(`/proc/self/fd/${descriptor}`).startsWith(folder);
    } catch {
      return false;
    }
  };
  return readdirSync('/proc/self/fd').filter(isOwn).length;
}

it('a database belongs to the first oracle that opens it, which can open it again', async () => {
  const options = await newOptions();
  await open(options, FIRST);
  await open(options, FIRST);
  expect(readClaims(options)).toEqual([FIRST]);
});

it('a database of another oracle is refused with the reason, and closed', async () => {
  const options = await newOptions();
  await (await openDatabase({ ...options, oracleDid: FIRST })).close();
  const opening = open(options, SECOND);
  await expect(opening).rejects.toThrow(
    `belongs to the oracle ${FIRST}, but this host is ${SECOND}`,
  );
  await expect(opening).rejects.toBeInstanceOf(StoreError);
  expect(countOpenFiles(options)).toBe(0);
  expect(readClaims(options)).toEqual([FIRST]);
});

it('a database can be opened without an oracle, which does not claim it', async () => {
  const options = await newOptions();
  await open(options);
  expect(readClaims(options)).toEqual([]);
  await open(options, SECOND);
  await open(options);
  expect(readClaims(options)).toEqual([SECOND]);
});

it('a database belongs to one of several oracles that open it at the same time', async () => {
  const options = await newOptions();
  const oracles = [FIRST, SECOND, FIRST, SECOND];
  const opened = await Promise.allSettled(oracles.map((did) => open(options, did)));
  const accepted = oracles.filter((_, i) => opened[i]?.status === 'fulfilled');
  expect(accepted).toHaveLength(2);
  expect(readClaims(options)).toEqual([accepted[0]]);
});

it('other facts about the database are not taken for its oracle', async () => {
  const options = await newOptions();
  const database = await open(options);
  const fact = { key: 'a_fact', value: FIRST };
  await database.write((tables) => tables.insertInto('database_info').values(fact).execute());
  await open(options, SECOND);
  expect(readClaims(options)).toEqual([SECOND]);
});

it.each(['mysql://localhost/sibyl', 'sibyl.db', 'x-postgres://localhost/sibyl'])(
  'the address %s is refused, and no file is created',
  async (databaseUrl) => {
    const options = await newOptions();
    const opening = open({ ...options, databaseUrl });
    await expect(opening).rejects.toThrow(/DATABASE_URL must start with postgres:\/\//);
    await expect(opening).rejects.toBeInstanceOf(StoreError);
    expect(readdirSync(options.dataDir)).toEqual([]);
  },
);

it.each(['postgres', 'postgresql', 'POSTGRES'])(
  'an address that begins with %s:// is one of PostgreSQL',
  async (scheme) => {
    const options = await newOptions();
    // Nothing listens on this port.
    const databaseUrl = `${scheme}://127.0.0.1:1/sibyl`;
    await expect(open({ ...options, databaseUrl })).rejects.toThrow(/PostgreSQL|ECONNREFUSED/);
    await expect(probeDatabase({ ...options, databaseUrl })).rejects.toThrow(
      /PostgreSQL|ECONNREFUSED/,
    );
    expect(readdirSync(options.dataDir)).toEqual([]);
  },
);

it('probeDatabase finds whether a file exists and is ready', async () => {
  const options = await newOptions();
  expect(await probeDatabase(options)).toBe('absent');
  await (await openDatabase(options)).close();
  expect(await probeDatabase(options)).toBe('ready');
});
