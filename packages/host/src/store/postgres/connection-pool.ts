import { LruMap, textBytes } from '@sibyl/server-kit';
import {
  Kysely,
  PostgresAdapter,
  PostgresDialect,
  type PostgresPool,
  type PostgresPoolClient,
  sql,
} from 'kysely';
import pg from 'pg';
import { withReplyTimeout } from '../../bus/postgres-session.js';
import { storable } from '../database.js';
import { TableNames } from '../migrations.js';
import type { Schema } from '../schema/index.js';
import { isOwnerLock } from './owner-queue.js';

export interface PostgresRequest {
  readonly url: string;
  /** Whether the address is that of a pooler, which may run each transaction on another connection. */
  readonly isPooled: boolean;
  /** Also called if a connection cannot be opened. */
  readonly onConnectionLost: (error: Error) => void;
}

export interface TimeLimits {
  /** Milliseconds that a statement may take; 0 for no limit. */
  readonly statement: number;
  /** Milliseconds that a transaction may wait for its next statement. */
  readonly idle: number;
}

interface PoolRequest extends PostgresRequest {
  readonly max: number;
  readonly limits: TimeLimits;
  readonly delay?: PoolDelay;
}

/** The tables of a PostgreSQL database, over a pool that connects when first used. */
export function connect(request: PoolRequest): Kysely<Schema> {
  const pool = createStorablePool(createPostgresPool(request), request);
  return new Kysely<Schema>({ dialect: new NamesDialect({ pool }) });
}

/** How much the latest use of a connection counts in the mean. */
const WEIGHT = 0.05;

/** Estimates how long a connection of a pool is waited for. */
export class PoolDelay {
  /** Since when each caller waits, the longest first. */
  private readonly waiting = new Set<{ readonly since: number }>();
  /** The mean time for which a connection is used. */
  private useMs = 0;

  constructor(private readonly size: number) {}

  /** Milliseconds until a connection would be free for a further caller. */
  estimate(): number {
    const [first] = this.waiting;
    if (!first) return 0;
    const waitedMs = performance.now() - first.since;
    return Math.max(waitedMs, (this.waiting.size * this.useMs) / this.size);
  }

  async wait<T>(connect: () => Promise<T>): Promise<T> {
    const place = { since: performance.now() };
    this.waiting.add(place);
    try {
      return await connect();
    } finally {
      this.waiting.delete(place);
    }
  }

  addUse(ms: number): void {
    this.useMs += WEIGHT * (ms - this.useMs);
  }
}

class NamesDialect extends PostgresDialect {
  override createAdapter(): PostgresAdapter {
    return new LockedAdapter();
  }

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

/**
 * Kysely would lock the session for its migrations: behind a pooler, the unlock may reach another one. Migrations run in a
 * transaction that has the lock already.
 */
class LockedAdapter extends PostgresAdapter {
  override async acquireMigrationLock(): Promise<void> {}
  override async releaseMigrationLock(): Promise<void> {}
}

const INT8_OID = 20;

/** Creates a pool that survives lost connections and reads 64-bit integers as numbers. */
function createPostgresPool(request: PoolRequest): pg.Pool {
  const pool = new pg.Pool({
    connectionString: request.url,
    max: request.max,
    types: { getTypeParser },
    ...(!request.isPooled && toParameters(request.limits)),
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

const toParameters = ({ statement, idle }: TimeLimits) => ({
  statement_timeout: statement,
  idle_in_transaction_session_timeout: idle,
});

/** Poolers refuse or drop parameters of a connection, so each transaction begins with them. */
const toStatements = (limits: TimeLimits): string =>
  Object.entries(toParameters(limits))
    .map(([name, value]) => `; set local ${name} = ${value}`)
    .join('');

const getTypeParser: typeof pg.types.getTypeParser = (oid: number, format?: 'text' | 'binary') => {
  // Milliseconds, counts and sequence numbers all stay far below 2^53.
  if (oid === INT8_OID) return Number;
  return pg.types.getTypeParser(oid, format as 'text');
};

/** How long the reply to a statement may take beyond the time limit of the statement itself. */
const REPLY_MS = 5_000;
/** Commits wait for no lock. What depends on their outcome reads the store again. */
const COMMIT_TIMEOUT_MS = 5_000;

/** Adapts the pool for Kysely and replaces characters that PostgreSQL cannot store. */
function createStorablePool(pool: pg.Pool, request: PoolRequest): PostgresPool {
  const names = request.isPooled ? undefined : new StatementNames();
  const clients = new WeakMap<pg.PoolClient, PostgresPoolClient>();
  const usedSince = new WeakMap<pg.PoolClient, number>();
  const { delay } = request;
  pool.on('release', (_error, client) => {
    const since = usedSince.get(client);
    if (since !== undefined) delay?.addUse(performance.now() - since);
  });
  const connect = () =>
    pool.connect().catch((error) => {
      request.onConnectionLost(error);
      throw error;
    });
  return {
    connect: async () => {
      const client = delay ? await delay.wait(connect) : await connect();
      usedSince.set(client, performance.now());
      const known = clients.get(client) ?? createStorableClient(client, { names, request });
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
    request: { limits, isPooled },
  }: { readonly names: StatementNames | undefined; readonly request: PoolRequest },
): PostgresPoolClient {
  const query: Query = (sql, parameters) => {
    const name = parameters.length > 0 ? names?.find(sql) : undefined;
    const values = parameters.map(storable);
    const asked = client.query({ ...(name && { name }), text: sql, values });
    if (sql === 'commit') return withReplyTimeout(COMMIT_TIMEOUT_MS, client, asked);
    if (limits.statement === 0) return asked;
    return withReplyTimeout(limits.statement + REPLY_MS, client, asked);
  };
  return {
    // Kysely's other form of query takes a cursor, which is only for streaming rows.
    query: joinBegin(
      query,
      isPooled ? toStatements(limits) : '',
    ) as unknown as PostgresPoolClient['query'],
    release: (discard) => client.release(discard),
  };
}

/** Sends `begin` together with the lock of an owner if that follows: one round trip instead of two. */
function joinBegin(query: Query, limits: string): Query {
  let begin: string | undefined;
  return async (sql, parameters) => {
    if (sql === 'begin' || sql.startsWith('start transaction')) {
      begin = `${sql}${limits}`;
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
class StatementNames {
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
