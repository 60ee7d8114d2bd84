import type { Database, DatabaseState } from './database.js';
import { openSqlite, probeSqlite } from './sqlite/sqlite.js';
import { StoreError } from './store-errors.js';

export interface DatabaseOptions {
  /** `postgres://…`; unset for a SQLite file in `dataDir`. */
  readonly databaseUrl?: string | undefined;
  readonly dataDir: string;
  /** PostgreSQL connections to open at most. */
  readonly poolSize?: number | undefined;
  /** How long a write for one owner may wait on PostgreSQL until it begins; default 10 s. */
  readonly writeWaitMs?: number | undefined;
  /** Called when a PostgreSQL connection is lost; the pool replaces it by itself. */
  readonly onConnectionLost?: ((error: Error) => void) | undefined;
}

/** Opens SQLite or PostgreSQL and migrates the schema. */
export async function openDatabase({
  databaseUrl,
  dataDir,
  poolSize,
  writeWaitMs,
  onConnectionLost = () => {},
}: DatabaseOptions): Promise<Database> {
  if (!databaseUrl) return openSqlite(dataDir);
  if (/^postgres(ql)?:\/\//i.test(databaseUrl)) {
    // Loaded only here, since most hosts use SQLite.
    const { openPostgres } = await import('./postgres/postgres.js');
    return openPostgres({ url: databaseUrl, poolSize, writeWaitMs, onConnectionLost });
  }
  throw new StoreError(
    'DATABASE_URL must start with postgres:// or postgresql://; leave it unset to use a SQLite file in DATA_DIR',
  );
}

/** Checks whether the database can be opened; changes nothing. */
export async function probeDatabase({
  databaseUrl,
  dataDir,
}: Pick<DatabaseOptions, 'databaseUrl' | 'dataDir'>): Promise<DatabaseState> {
  if (!databaseUrl) return probeSqlite(dataDir);
  const { probePostgres } = await import('./postgres/postgres.js');
  return probePostgres(databaseUrl);
}
