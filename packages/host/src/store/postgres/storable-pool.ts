import type { PostgresPool, PostgresPoolClient } from 'kysely';
import type pg from 'pg';
import { storable } from '../database/storable.js';

/** The pool as Kysely sees it, with parameters PostgreSQL can store. */
export function createStorablePool(
  pool: pg.Pool,
  onConnectFailure: (error: Error) => void,
): PostgresPool {
  const clients = new WeakMap<pg.PoolClient, PostgresPoolClient>();
  return {
    connect: async () => {
      const client = await pool.connect().catch((error) => {
        onConnectFailure(error);
        throw error;
      });
      const known = clients.get(client) ?? storableClient(client);
      clients.set(client, known);
      return known;
    },
    end: () => pool.end(),
    options: {},
  };
}

function storableClient(client: pg.PoolClient): PostgresPoolClient {
  const query = (sql: string, parameters: readonly unknown[]): Promise<unknown> =>
    client.query(sql, parameters.map(storable));
  return {
    // Kysely's other form of query takes a cursor, which is only for streaming rows.
    query: query as unknown as PostgresPoolClient['query'],
    release: (discard) => client.release(discard),
  };
}
