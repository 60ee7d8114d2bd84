import { LruMap, textBytes } from '@sibyl/server-kit';
import { Kysely, PostgresDialect, type PostgresPool, type PostgresPoolClient, sql } from 'kysely';
import pg from 'pg';
import { withReplyTimeout } from '../../bus/postgres-session.js';
import {
  type Database,
  type DatabaseState,
  readSnapshot,
  type Schema,
  storable,
  type Unit,
} from '../database.js';
import { hostSchema, isBehind, migrate, TableNames } from '../migrations/migrate.js';
import { repeatRolledBack, StoreError } from '../store-errors.js';
import { DatabaseClock } from './database-clock.js';
import { isOwnerLock, OwnerQueue } from './owner-queue.js';

/** Each connection keeps about 20 kB on the server for every statement. */
const MAX_NAMES = 150;
/** Statements that are used more often are worth preparing. */
const MIN_USES = 5;
const MAX_LENGTH = 4_096;
const MAX_COUNTED = 500;
const MAX_COUNTED_BYTES = 1024 * 1024;

/** A statement for all columns fails on the server once a newer host has added one. */
const ALL_COLUMNS = /(?:select|returning) \*|\.\*/i;

/**
 * Names the statements that are used most, so that PostgreSQL parses and plans them once per connection. Statements
 * are never forgotten by the server, so their number is limited.
 */
export class StatementNames {
  private readonly names = new Map<string, string>();
  private readonly uses = new LruMap<string, number>({
    maxEntries: MAX_COUNTED,
    maxBytes: MAX_COUNTED_BYTES,
    measure: (_, sql) => textBytes(sql),
  });

  /** Undefined for a statement that is not worth a name yet. */
  find(sql: string): string | undefined {
    return this.names.get(sql) ?? this.count(sql);
  }

  private count(sql: string): string | undefined {
    if (this.names.size >= MAX_NAMES || sql.length > MAX_LENGTH) return undefined;
    const uses = (this.uses.get(sql) ?? 0) + 1;
    this.uses.set(sql, uses);
    if (uses < MIN_USES || ALL_COLUMNS.test(sql)) return undefined;
    this.uses.delete(sql);
    const name = `sibyl_${this.names.size}`;
    this.names.set(sql, name);
    return name;
  }
}

const STATEMENT_TIMEOUT_MS = 30_000;
/** How long the reply to a statement may take beyond the time limit of the statement itself. */
const REPLY_MS = 5_000;
/** Commits wait for no lock. What depends on their outcome reads the store again. */
const COMMIT_TIMEOUT_MS = 5_000;
const DEFAULT_POOL_SIZE = 10;
const DEFAULT_WRITE_WAIT_MS = 10_000;
/** After this, the host of a transaction is frozen or lost; others wait longer for its locks. */
const IDLE_MS = 8_000;

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
  const tables = connect({ ...request, max, statementTimeout: STATEMENT_TIMEOUT_MS });
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

class NamesDialect extends PostgresDialect {
  // biome-ignore lint/suspicious/noExplicitAny: Kysely's own signature.
  override createIntrospector(tables: Kysely<any>): TableNames {
    const select = sql<{ name: string }>`select tablename as name from pg_tables
      where schemaname !~ '^pg_' and schemaname <> 'information_schema'`;
    return new TableNames(async () => {
      const { rows } = await select.execute(tables);
      return rows.map(({ name }) => name);
    });
  }
}

/** The tables of a PostgreSQL database, over a pool that connects when first used. */
function connect(request: PoolRequest): Kysely<Schema> {
  const pool = createStorablePool(createPostgresPool(request), request);
  return new Kysely<Schema>({ dialect: new NamesDialect({ pool }) });
}

/** Checks whether the database can be reached and is migrated; changes nothing. */
export async function probePostgres(url: string): Promise<DatabaseState> {
  const request = { url, onConnectionLost: () => {} };
  const lacksSteps = await reachPostgres(request, (tables) => isBehind(tables, hostSchema));
  return lacksSteps ? 'behind' : 'ready';
}

const INT8_OID = 20;

interface PoolRequest extends PostgresRequest {
  readonly max: number;
  /** Milliseconds a statement may take; 0 for no limit. */
  readonly statementTimeout: number;
}

/** Creates a pool that survives lost connections and reads 64-bit integers as numbers. */
function createPostgresPool(request: PoolRequest): pg.Pool {
  const pool = new pg.Pool({
    connectionString: request.url,
    max: request.max,
    types: { getTypeParser },
    statement_timeout: request.statementTimeout,
    idle_in_transaction_session_timeout: request.statementTimeout === 0 ? 60_000 : IDLE_MS,
    connectionTimeoutMillis: 5_000,
    idleTimeoutMillis: 30_000,
    keepAlive: true,
    application_name: 'sibyl',
  });
  // Without listeners on both, a lost connection would end the process: the pool reports errors of idle clients,
  // while an active client reports its own.
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', request.onConnectionLost));
  return pool;
}

const getTypeParser: typeof pg.types.getTypeParser = (oid: number, format?: 'text' | 'binary') => {
  // Milliseconds, counts and sequence numbers all stay far below 2^53.
  if (oid === INT8_OID) return Number;
  return pg.types.getTypeParser(oid, format as 'text');
};

export interface PostgresRequest {
  readonly url: string;
  /** Whether the address is that of a pooler, which may run each transaction on another connection. */
  readonly isPooled?: boolean | undefined;
  /** Also called if a connection cannot be opened. */
  readonly onConnectionLost: (error: Error) => void;
}

/** Runs the first unit of work on a server; an error names the server and what to check. */
async function reachPostgres<T>(request: PostgresRequest, unit: Unit<T>): Promise<T> {
  const address = readAddress(request.url);
  try {
    return await withConnection(request, unit);
  } catch (error) {
    if (error instanceof StoreError) throw error;
    throw new StoreError(
      `Cannot open PostgreSQL at ${address}: ${describeError(error)}; check DATABASE_URL and that the server is running`,
      { cause: error },
    );
  }
}

/** Uses a separate connection, because waiting for the migration of another process may take long. */
async function withConnection<T>(request: PostgresRequest, unit: Unit<T>): Promise<T> {
  const tables = connect({ ...request, max: 1, statementTimeout: 0 });
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

/** Adapts the pool for Kysely and replaces characters that PostgreSQL cannot store. */
function createStorablePool(
  pool: pg.Pool,
  { onConnectionLost, isPooled, statementTimeout }: PoolRequest,
): PostgresPool {
  const names = isPooled ? undefined : new StatementNames();
  const clients = new WeakMap<pg.PoolClient, PostgresPoolClient>();
  return {
    connect: async () => {
      const client = await pool.connect().catch((error) => {
        onConnectionLost(error);
        throw error;
      });
      const known =
        clients.get(client) ?? createStorableClient(client, { names, statementTimeout });
      clients.set(client, known);
      return known;
    },
    end: () => pool.end(),
    options: {},
  };
}

type Query = (sql: string, parameters: readonly unknown[]) => Promise<unknown>;

function createStorableClient(
  client: pg.PoolClient,
  {
    names,
    statementTimeout,
  }: { readonly names: StatementNames | undefined; readonly statementTimeout: number },
): PostgresPoolClient {
  const query: Query = (sql, parameters) => {
    const name = parameters.length > 0 ? names?.find(sql) : undefined;
    const values = parameters.map(storable);
    const asked = client.query({ ...(name && { name }), text: sql, values });
    if (sql === 'commit') return withReplyTimeout(COMMIT_TIMEOUT_MS, client, asked);
    if (statementTimeout === 0) return asked;
    return withReplyTimeout(statementTimeout + REPLY_MS, client, asked);
  };
  return {
    // Kysely's other form of query takes a cursor, which is only for streaming rows.
    query: joinBegin(query) as unknown as PostgresPoolClient['query'],
    release: (discard) => client.release(discard),
  };
}

/** Sends `begin` together with the lock of an owner if that follows: one round trip instead of two. */
function joinBegin(query: Query): Query {
  let begin: string | undefined;
  return async (sql, parameters) => {
    if (sql === 'begin') {
      begin = sql;
      return NO_ROWS;
    }
    const first = begin;
    begin = undefined;
    if (first === undefined) return query(sql, parameters);
    if (parameters.length === 0 && isOwnerLock(sql))
      return query(`${first}; ${sql}`, []).then(last);
    await query(first, []);
    return query(sql, parameters);
  };
}

const NO_ROWS = { command: 'BEGIN', rowCount: 0, rows: [] };

/** Several statements have several results. */
const last = (results: unknown) => (Array.isArray(results) ? results.at(-1) : results);
