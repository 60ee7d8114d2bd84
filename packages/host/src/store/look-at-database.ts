import type { DatabaseState } from './database/database-state.js';
import type { DatabaseOptions } from './open-database.js';
import { lookAtSqlite } from './sqlite/look-at-sqlite.js';

/** Sees whether the database the options name would open, and changes nothing. */
export async function lookAtDatabase({
  databaseUrl,
  dataDir,
}: Pick<DatabaseOptions, 'databaseUrl' | 'dataDir'>): Promise<DatabaseState> {
  if (!databaseUrl) return lookAtSqlite(dataDir);
  const { lookAtPostgres } = await import('./postgres/look-at-postgres.js');
  return lookAtPostgres(databaseUrl);
}
