import { Kysely, PostgresDialect } from 'kysely';
import type { Database, Unit } from '../database/database.js';
import { readSnapshot } from '../database/read-snapshot.js';
import type { Schema } from '../database/schema.js';
import { StoreError } from '../database/store-error.js';
import { hostSchema, type MigrationPlan, migrate } from '../migrations/migrate.js';
import { createPostgresPool, type PoolRequest } from './postgres-pool.js';
import { createStorablePool } from './storable-pool.js';

const STATEMENT_TIMEOUT_MS = 30_000;
const POOL_SIZE = 10;

export interface PostgresRequest {
  readonly url: string;
  readonly onConnectionLost: (error: Error) => void;
}

/** Connects to PostgreSQL and brings its schema up to date. */
export async function openPostgres(request: PostgresRequest): Promise<Database> {
  const place = placeOf(request.url);
  try {
    await migrateOnce(request, hostSchema);
  } catch (error) {
    if (error instanceof StoreError) throw error;
    throw new StoreError(
      `Cannot open PostgreSQL at ${place}: ${reasonOf(error)}; check DATABASE_URL and that the server runs`,
      { cause: error },
    );
  }
  return asDatabase(
    connect({ ...request, max: POOL_SIZE, statementTimeout: STATEMENT_TIMEOUT_MS }),
    request,
  );
}

/** On a connection of its own, since waiting for another process's migration may take long. */
async function migrateOnce(request: PostgresRequest, plan: MigrationPlan): Promise<void> {
  const tables = connect({ ...request, max: 1, statementTimeout: 0 });
  try {
    await migrate(tables, plan);
  } finally {
    await tables.destroy();
  }
}

function connect(request: PoolRequest): Kysely<Schema> {
  const pool = createStorablePool(createPostgresPool(request));
  return new Kysely<Schema>({ dialect: new PostgresDialect({ pool }) });
}

function asDatabase(tables: Kysely<Schema>, request: PostgresRequest): Database {
  const underWay = new Set<Promise<unknown>>();
  const write = <T>(unit: Unit<T>): Promise<T> => {
    const writing = tables.transaction().execute(unit);
    const forget = () => underWay.delete(writing);
    underWay.add(writing);
    writing.then(forget, forget);
    return writing;
  };
  return {
    engine: 'postgres',
    tables,
    write,
    read: (unit) => readSnapshot(tables, unit),
    migrate: (plan) => migrateOnce(request, plan),
    close: async () => {
      await Promise.allSettled(underWay);
      await tables.destroy();
    },
  };
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
