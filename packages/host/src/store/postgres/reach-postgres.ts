import type { Unit } from '../database/database.js';
import { StoreError } from '../database/store-error.js';
import { connectTo } from './connect-to.js';

export interface PostgresRequest {
  readonly url: string;
  readonly onConnectionLost: (error: Error) => void;
}

/** Does the first thing on a server; what fails there names where it is and what to check. */
export async function reachPostgres<T>(request: PostgresRequest, unit: Unit<T>): Promise<T> {
  const place = placeOf(request.url);
  try {
    return await onOneConnection(request, unit);
  } catch (error) {
    if (error instanceof StoreError) throw error;
    throw new StoreError(
      `Cannot open PostgreSQL at ${place}: ${reasonOf(error)}; check DATABASE_URL and that the server runs`,
      { cause: error },
    );
  }
}

/** Has a connection of its own, since waiting for another process's migration may take long. */
export async function onOneConnection<T>(request: PostgresRequest, unit: Unit<T>): Promise<T> {
  const tables = connectTo({ ...request, max: 1, statementTimeout: 0 });
  try {
    return await unit(tables);
  } finally {
    await tables.destroy();
  }
}

/** Host and port alone: the rest of the URL may hold a password. */
function placeOf(url: string): string {
  if (!URL.canParse(url)) {
    throw new StoreError(
      'DATABASE_URL is not a valid URL; write postgres://user:password@host:5432/database',
    );
  }
  const { hostname, port, searchParams } = new URL(url);
  return `${searchParams.get('host') ?? (hostname || 'localhost')}:${port || '5432'}`;
}

function reasonOf(error: unknown): string {
  // Trying several addresses of one name fails with one error each and no text of its own.
  const first = error instanceof AggregateError ? error.errors[0] : error;
  return first instanceof Error ? first.message : String(first);
}
