import { setTimeout as sleep } from 'node:timers/promises';
import { type Kysely, sql } from 'kysely';
import {
  type Database,
  type DatabaseState,
  type MigrationPlan,
  readSnapshot,
  type Unit,
} from '../database.js';
import { hostSchema, isBehind, migrate } from '../migrations.js';
import type { Schema } from '../schema/index.js';
import { repeatRolledBack, StoreError } from '../store-errors.js';
import { connect, PoolDelay, type TimeLimits } from './connection-pool.js';
import { DatabaseClock } from './database-clock.js';
import { OWNER_LOCK_CLASS, OwnerQueue } from './owner-queue.js';

/** After 8 s, the host of a transaction is frozen or lost; others wait longer for its locks. */
const LIMITS: TimeLimits = { statement: 30_000, idle: 8_000 };
const MIGRATION_LIMITS: TimeLimits = { statement: 0, idle: 60_000 };
const DEFAULT_POOL_SIZE = 10;
const DEFAULT_WRITE_WAIT_MS = 10_000;

export interface PostgresOptions {
  readonly url: string;
  /** The address of PostgreSQL itself, if `url` is that of a pooler. */
  readonly directUrl?: string | undefined;
  readonly poolSize?: number | undefined;
  readonly writeWaitMs?: number | undefined;
  readonly onConnectionLost: (error: Error) => void;
  /** Called with what the migration of a schema waits for. */
  readonly onWait: (reason: string) => void;
}

/** Connects to PostgreSQL and migrates the schema. */
export async function openPostgres(options: PostgresOptions): Promise<Database> {
  const { url, directUrl, poolSize: max = DEFAULT_POOL_SIZE, onConnectionLost } = options;
  const request = { url, isPooled: directUrl !== undefined, onConnectionLost };
  const delay = new PoolDelay(max);
  const tables = connect({ ...request, max, limits: LIMITS, delay });
  try {
    if (await reachPostgres('DATABASE_URL', url, () => isBehind(tables, hostSchema)))
      await reachDirectly(options, () => migrateAlone(options, hostSchema));
    const clock = await DatabaseClock.start(tables);
    return asDatabase({ tables, clock, delay, options });
  } catch (error) {
    await tables.destroy();
    throw error;
  }
}

interface Opened {
  readonly tables: Kysely<Schema>;
  readonly clock: DatabaseClock;
  readonly delay: PoolDelay;
  readonly options: PostgresOptions;
}

function asDatabase({ tables, clock, delay, options }: Opened): Database {
  const { writeWaitMs = DEFAULT_WRITE_WAIT_MS } = options;
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
    estimateDelay: () => delay.estimate(),
    isStoring: () => false,
    read: (unit) => readSnapshot(tables, unit),
    migrate: async (plan) => {
      if (await isBehind(tables, plan)) await migrateAlone(options, plan);
    },
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

export type PostgresAddress = Pick<PostgresOptions, 'url' | 'directUrl'>;

/** Checks whether the database can be reached and is migrated; changes nothing. */
export async function probePostgres(address: PostgresAddress): Promise<DatabaseState> {
  const lacksSteps = await reachDirectly(address, () =>
    withConnection(address, (tables) => isBehind(tables, hostSchema)),
  );
  return lacksSteps ? 'behind' : 'ready';
}

/** PostgreSQL's locks of this kind have two numbers; the first one is that of this program. */
export const MIGRATION_LOCK = `${OWNER_LOCK_CLASS + 1}, 0`;
const LOCK_RETRY_MS = 250;
const WAIT_REPORT_MS = 15_000;

/** One process at a time, in a separate transaction: waiting for another process may take long. */
async function migrateAlone(options: PostgresOptions, plan: MigrationPlan): Promise<void> {
  await withConnection(options, async (tables) => {
    let reportAt = performance.now();
    while (!(await tryToMigrate(tables, plan))) {
      if (performance.now() >= reportAt) {
        options.onWait(await describeMigrationWait(tables, plan));
        reportAt += WAIT_REPORT_MS;
      }
      await sleep(LOCK_RETRY_MS);
    }
  });
}

/** False if another process is migrating this database. */
const tryToMigrate = (tables: Kysely<Schema>, plan: MigrationPlan): Promise<boolean> =>
  tables.transaction().execute(async (own) => {
    const { rows } = await sql<{ hasLock: boolean }>`
      select pg_try_advisory_xact_lock(${sql.raw(MIGRATION_LOCK)}) as "hasLock"`.execute(own);
    if (!rows[0]?.hasLock) return false;
    await migrate(own, plan);
    return true;
  });

async function describeMigrationWait(
  tables: Kysely<Schema>,
  { author }: MigrationPlan,
): Promise<string> {
  const { rows } = await sql<{ holder: string }>`
    select concat('process ', pid, ' of PostgreSQL (', application_name, ' at ',
      coalesce(host(client_addr), 'its own machine'), ', since ', xact_start, ')') as holder
    from pg_locks join pg_stat_activity using (pid)
    where locktype = 'advisory' and granted and objsubid = 2 and (classid, objid) = (${sql.raw(MIGRATION_LOCK)})
      and pg_locks.database = (select oid from pg_database where datname = current_database())
  `.execute(tables);
  const holder = rows[0]?.holder ?? 'another process';
  return `waiting to migrate the tables of ${author}: ${holder} is migrating this database; trying again`;
}

/** Runs a unit of work on a separate connection that keeps its session. */
async function withConnection<T>({ url, directUrl }: PostgresAddress, unit: Unit<T>): Promise<T> {
  const isPooled = directUrl !== undefined;
  const own = { url: directUrl ?? url, isPooled, onConnectionLost: () => {} };
  const tables = connect({ ...own, max: 1, limits: MIGRATION_LIMITS });
  try {
    return await unit(tables);
  } finally {
    await tables.destroy();
  }
}

const reachDirectly = <T>({ url, directUrl }: PostgresAddress, work: () => Promise<T>) =>
  directUrl === undefined
    ? reachPostgres('DATABASE_URL', url, work)
    : reachPostgres('DATABASE_DIRECT_URL', directUrl, work);

/** Runs the first unit of work on a server; an error names the server and what to check. */
async function reachPostgres<T>(variable: string, url: string, work: () => Promise<T>): Promise<T> {
  const address = readAddress(url);
  try {
    return await work();
  } catch (error) {
    if (error instanceof StoreError) throw error;
    const reason = describeError(error);
    const advice = reason.includes('startup parameter')
      ? 'this is a pooler such as PgBouncer: set DATABASE_DIRECT_URL to PostgreSQL itself, or to a pooler in session mode'
      : `check ${variable} and that the server is running`;
    const message = `Cannot open PostgreSQL at ${address}: ${reason}; ${advice}`;
    throw new StoreError(message, { cause: error });
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
