import type { Kysely } from 'kysely';
import type { Database, Unit } from '../database/database.js';
import { readSnapshot } from '../database/read-snapshot.js';
import type { Schema } from '../database/schema.js';
import { hostSchema, migrate } from '../migrations/migrate.js';
import { connectTo } from './connect-to.js';
import { OwnerQueue } from './owner-queue.js';
import { onOneConnection, type PostgresRequest, reachPostgres } from './reach-postgres.js';

const STATEMENT_TIMEOUT_MS = 30_000;
const DEFAULT_POOL_SIZE = 10;
const DEFAULT_WRITE_WAIT_MS = 10_000;

/** Connects to PostgreSQL and brings its schema up to date. */
export async function openPostgres({
  poolSize: max = DEFAULT_POOL_SIZE,
  writeWaitMs = DEFAULT_WRITE_WAIT_MS,
  ...request
}: PostgresRequest & {
  readonly poolSize?: number | undefined;
  readonly writeWaitMs?: number | undefined;
}): Promise<Database> {
  await reachPostgres(request, (tables) => migrate(tables, hostSchema));
  return asDatabase(
    connectTo({ ...request, max, statementTimeout: STATEMENT_TIMEOUT_MS }),
    request,
    writeWaitMs,
  );
}

function asDatabase(
  tables: Kysely<Schema>,
  request: PostgresRequest,
  writeWaitMs: number,
): Database {
  const underWay = new Set<Promise<unknown>>();
  const write = <T>(unit: Unit<T>): Promise<T> => {
    const writing = tables.transaction().execute(unit);
    const forget = () => underWay.delete(writing);
    underWay.add(writing);
    writing.then(forget, forget);
    return writing;
  };
  const owners = new OwnerQueue(write, writeWaitMs);
  return {
    engine: 'postgres',
    tables,
    write,
    writeFor: (owner, unit) => owners.write(owner, unit),
    read: (unit) => readSnapshot(tables, unit),
    migrate: (plan) => onOneConnection(request, (own) => migrate(own, plan)),
    // PostgreSQL has its autovacuum.
    reclaim: async () => {},
    close: async () => {
      await owners.settled();
      await Promise.allSettled(underWay);
      await tables.destroy();
    },
  };
}
