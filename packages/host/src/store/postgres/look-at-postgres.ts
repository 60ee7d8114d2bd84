import type { DatabaseState } from '../database/database-state.js';
import { hostSchema, isBehind } from '../migrations/migrate.js';
import { reachPostgres } from './reach-postgres.js';

/** Sees whether the database lets this machine in and what it holds, and leaves it as it is. */
export async function lookAtPostgres(url: string): Promise<DatabaseState> {
  const request = { url, onConnectionLost: () => {} };
  const lacksSteps = await reachPostgres(request, (tables) => isBehind(tables, hostSchema));
  return lacksSteps ? 'behind' : 'ready';
}
