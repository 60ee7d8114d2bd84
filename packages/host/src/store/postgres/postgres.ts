import type { Kysely } from 'kysely';
import {
  type Database,
  type DatabaseState,
  readSnapshot,
  type Schema,
  type Unit,
} from '../database.js';
import { hostSchema, isBehind, migrate } from '../migrations/migrate.js';
import { repeatRolledBack, StoreError } from '../store-errors.js';
import { connect, type PostgresRequest, type TimeLimits } from './connection-pool.js';
import { DatabaseClock } from './database-clock.js';
import { OwnerQueue } from './owner-queue.js';

/** After 8 s, the host of a transaction is frozen or lost; others wait longer for its locks. */
const LIMITS: TimeLimits = { statement: 30_000, idle: 8_000 };
const MIGRATION_LIMITS: TimeLimits = { statement: 0, idle: 60_000 };
const DEFAULT_POOL_SIZE = 10;
const DEFAULT_WRITE_WAIT_MS = 10_000;

/** Connects to PostgreSQL and migrates the schema. */
export async function openPostgres({
  poolSize: max = DEFAULT_POOL_SIZE,
  writeWaitMs = DEFAULT_WRITE_WAIT_MS,
  ...request
}: PostgresRequest & {
  readonly poolSize?: number | undefined;
  readonly writeWaitMs?: number | undefined;
}): Promise<Database> {
  await reachPostgres(request, (tables) => migrate(tables, hostSchema));
  const tables = connect({ ...request, max, limits: LIMITS });
  try {
    const clock = await DatabaseClock.start(tables);
    return asDatabase({ tables, clock, request, writeWaitMs });
  } catch (error) {
    await tables.destroy();
    throw error;
  }
}

interface Opened {
  readonly tables: Kysely<Schema>;
  readonly clock: DatabaseClock;
  readonly request: PostgresRequest;
  readonly writeWaitMs: number;
}

function asDatabase({ tables, clock, request, writeWaitMs }: Opened): Database {
  const pending = new Set<Promise<unknown>>();
  const write = <T>(unit: Unit<T>): Promise<T> => {
    const writing = repeatRolledBack(() => tables.transaction().execute(unit));
    const forget = () => pending.delete(writing);
    pending.add(writing);
    writing.then(forget, forget);
    return writing;
  };
  const owners = new OwnerQueue(write, writeWaitMs);
  return {
    engine: 'postgres',
    now: () => clock.now(),
    tables,
    write,
    writeFor: (owner, unit) => owners.write(owner, unit),
    read: (unit) => readSnapshot(tables, unit),
    migrate: (plan) => withConnection(request, (own) => migrate(own, plan)),
    // Autovacuum does this.
    reclaim: async () => {},
    close: async () => {
      clock.stop();
      await owners.settled();
      await Promise.allSettled(pending);
      await tables.destroy();
    },
  };
}

/** Checks whether the database can be reached and is migrated; changes nothing. */
export async function probePostgres(url: string): Promise<DatabaseState> {
  const request = { url, onConnectionLost: () => {} };
  const lacksSteps = await reachPostgres(request, (tables) => isBehind(tables, hostSchema));
  return lacksSteps ? 'behind' : 'ready';
}

/** Runs the first unit of work on a server; an error names the server and what to check. */
async function reachPostgres<T>(request: PostgresRequest, unit: Unit<T>): Promise<T> {
  const address = readAddress(request.url);
  try {
    return await withConnection(request, unit);
  } catch (error) {
    if (error instanceof StoreError) throw error;
    const reason = describeError(error);
    const advice = reason.includes('startup parameter')
      ? 'this is a pooler such as PgBouncer: set DATABASE_DIRECT_URL to PostgreSQL itself, or to a pooler in session mode'
      : 'check DATABASE_URL and that the server is running';
    const message = `Cannot open PostgreSQL at ${address}: ${reason}; ${advice}`;
    throw new StoreError(message, { cause: error });
  }
}

/** Uses a separate connection, because waiting for the migration of another process may take long. */
async function withConnection<T>(request: PostgresRequest, unit: Unit<T>): Promise<T> {
  const tables = connect({ ...request, max: 1, limits: MIGRATION_LIMITS });
  try {
    return await unit(tables);
  } finally {
    await tables.destroy();
  }
}

/** Only host and port: the rest of the URL may contain a password. */
function readAddress(url: string): string {
  if (!URL.canParse(url)) {
    throw new StoreError(
      'DATABASE_URL is not a valid URL; write postgres://user:password@host:5432/database',
    );
  }
  const { hostname, port, searchParams } = new URL(url);
  return `${searchParams.get('host') ?? (hostname || 'localhost')}:${port || '5432'}`;
}

function describeError(error: unknown): string {
  // If a name has several addresses, the error contains one error for each and has no message.
  const first = error instanceof AggregateError ? error.errors[0] : error;
  return first instanceof Error ? first.message : String(first);
}
