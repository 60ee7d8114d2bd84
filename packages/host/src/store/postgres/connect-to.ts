import { Kysely, PostgresDialect } from 'kysely';
import type { Schema } from '../database/schema.js';
import { createPostgresPool, type PoolRequest } from './postgres-pool.js';
import { createStorablePool } from './storable-pool.js';

/** The tables of a PostgreSQL database, over a pool that connects when first used. */
export function connectTo(request: PoolRequest): Kysely<Schema> {
  const pool = createStorablePool(createPostgresPool(request), request.onConnectionLost);
  return new Kysely<Schema>({ dialect: new PostgresDialect({ pool }) });
}
