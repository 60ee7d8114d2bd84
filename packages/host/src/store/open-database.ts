import type { Database, DatabaseState } from './database.js';
import { openSqlite, probeSqlite } from './sqlite/sqlite.js';
import { StoreError } from './store-errors.js';

export interface DatabaseOptions {
  /** `postgres://…`; unset for a SQLite file in `dataDir`. */
  readonly databaseUrl?: string | undefined;
  readonly dataDir: string;
  /** PostgreSQL connections to open at most. */
  readonly poolSize?: number | undefined;
  /** How long a write for one owner may wait on PostgreSQL until it begins; 10 s if unset. */
  readonly writeWaitMs?: number | undefined;
  /** Hears of PostgreSQL connections that broke; the pool replaces them by itself. */
  readonly onConnectionLost?: ((error: Error) => void) | undefined;
}

/** Opens the engine the options name and brings its schema up to date. */
export async function openDatabase({
  databaseUrl,
  dataDir,
  poolSize,
  writeWaitMs,
  onConnectionLost = () => {},
}: DatabaseOptions): Promise<Database> {
  if (!databaseUrl) return openSqlite(dataDir);
  if (/^postgres(ql)?:\/\//i.test(databaseUrl)) {
    // Loaded here, since most hosts have none.
    const { openPostgres } = await import('./postgres/postgres.js');
    return openPostgres({ url: databaseUrl, poolSize, writeWaitMs, onConnectionLost });
  }
  throw new StoreError(
    'DATABASE_URL must start with postgres:// or postgresql://; leave it unset to use a SQLite file in DATA_DIR',
  );
}

/** Sees whether the database the options name would open, and changes nothing. */
export async function probeDatabase({
  databaseUrl,
  dataDir,
}: Pick<DatabaseOptions, 'databaseUrl' | 'dataDir'>): Promise<DatabaseState> {
  if (!databaseUrl) return probeSqlite(dataDir);
  const { probePostgres } = await import('./postgres/postgres.js');
  return probePostgres(databaseUrl);
}
