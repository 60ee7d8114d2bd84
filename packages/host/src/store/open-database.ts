import type { Kysely } from 'kysely';
import type { Database, DatabaseState } from './database.js';
import type { Schema } from './schema/index.js';
import { openSqlite, probeSqlite } from './sqlite/sqlite.js';
import { StoreError } from './store-errors.js';

export interface DatabaseOptions {
  /** `postgres://…`; unset for a SQLite file in `dataDir`. */
  readonly databaseUrl?: string | undefined;
  /** The address of PostgreSQL itself, if `databaseUrl` is that of a pooler. */
  readonly databaseDirectUrl?: string | undefined;
  readonly dataDir: string;
  /** PostgreSQL connections to open at most. */
  readonly poolSize?: number | undefined;
  /** How long a write for one owner may wait on PostgreSQL until it begins; default 10 s. */
  readonly writeWaitMs?: number | undefined;
  /** Claims the database for this oracle: one of another oracle is rejected. Unset: any. */
  readonly oracleDid?: string | undefined;
  /** Called when a write fails because the disk of SQLite is full, before it is tried again: it may free some space. */
  readonly onFull?: (() => void) | undefined;
  /** Called when a PostgreSQL connection is lost; the pool replaces it by itself. */
  readonly onConnectionLost?: ((error: Error) => void) | undefined;
  /** Called from time to time with what the migration of a schema waits for. */
  readonly onWait?: ((reason: string) => void) | undefined;
}

/** Opens SQLite or PostgreSQL, migrates the schema and checks whose database it is. */
export async function openDatabase(options: DatabaseOptions): Promise<Database> {
  const database = await openEngine(options);
  try {
    if (options.oracleDid !== undefined) await claimDatabase(database, options.oracleDid);
    return database;
  } catch (error) {
    await database.close();
    throw error;
  }
}

async function openEngine({
  databaseUrl,
  databaseDirectUrl,
  dataDir,
  onFull = () => {},
  onConnectionLost = () => {},
  onWait = () => {},
  ...limits
}: DatabaseOptions): Promise<Database> {
  if (!databaseUrl) return openSqlite(dataDir, onFull);
  if (/^postgres(ql)?:\/\//i.test(databaseUrl)) {
    // Loaded only here, since most hosts use SQLite.
    const { openPostgres } = await import('./postgres/postgres.js');
    const address = { url: databaseUrl, directUrl: databaseDirectUrl };
    return openPostgres({ ...address, ...limits, onConnectionLost, onWait });
  }
  throw new StoreError(
    'DATABASE_URL must start with postgres:// or postgresql://; leave it unset to use a SQLite file in DATA_DIR',
  );
}

const ORACLE_KEY = 'oracle_did';

/** Two oracles on one database would see the sessions of each other's users, and could not read their secrets. */
async function claimDatabase(database: Database, oracleDid: string): Promise<void> {
  const owner =
    (await readOwner(database.tables)) ??
    (await database.write(async (tables) => {
      await tables
        .insertInto('database_info')
        .values({ key: ORACLE_KEY, value: oracleDid })
        .onConflict((c) => c.column('key').doNothing())
        .execute();
      return readOwner(tables);
    }));
  if (owner === oracleDid) return;
  throw new StoreError(
    `This database belongs to the oracle ${owner}, but this host is ${oracleDid}. Start it with the key of that oracle (ORACLE_MNEMONIC, ORACLE_PRIVATE_KEY or the key file in DATA_DIR, and ORACLE_DID), or point DATABASE_URL or DATA_DIR at another database. If the oracle has a new DID on purpose, see "Changing the oracle's DID" in docs/deploying.md`,
  );
}

async function readOwner(tables: Kysely<Schema>): Promise<string | undefined> {
  const row = await tables
    .selectFrom('database_info')
    .select('value')
    .where('key', '=', ORACLE_KEY)
    .executeTakeFirst();
  return row?.value;
}

/** Checks whether the database can be opened; changes nothing. */
export async function probeDatabase({
  databaseUrl,
  databaseDirectUrl,
  dataDir,
}: Pick<DatabaseOptions, 'databaseUrl' | 'databaseDirectUrl' | 'dataDir'>): Promise<DatabaseState> {
  if (!databaseUrl) return probeSqlite(dataDir);
  const { probePostgres } = await import('./postgres/postgres.js');
  return probePostgres({ url: databaseUrl, directUrl: databaseDirectUrl });
}
