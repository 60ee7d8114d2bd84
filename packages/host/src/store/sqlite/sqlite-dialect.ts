import type { DatabaseSync, SQLInputValue, SQLOutputValue, StatementSync } from 'node:sqlite';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { LruMap, textBytes } from '@sibyl/server-kit';
import {
  type ConnectionProvider,
  type DatabaseConnection,
  DefaultQueryExecutor,
  type Dialect,
  type Driver,
  type Kysely,
  type LimitNode,
  type QueryCompiler,
  type QueryResult,
  SqliteAdapter,
  SqliteQueryCompiler,
  sql,
  Transaction,
  type TransactionSettings,
  ValueNode,
} from 'kysely';
import { type DirectAdapter, type StatementWithValues, storable } from '../database.js';
import { TableNames } from '../migrations.js';
import { StoreError } from '../store-errors.js';

/** Kysely on `node:sqlite`. */
export class SqliteDialect implements Dialect {
  readonly driver: SqliteDriver;
  private readonly connection: SqliteConnection;
  private readonly adapter: SqliteAdapter;
  private readonly compiler = new LiteralLimitCompiler();

  constructor(handle: DatabaseSync) {
    this.connection = new SqliteConnection(handle);
    this.driver = new SqliteDriver(handle, this.connection);
    this.adapter = new SingleConnectionAdapter(this.connection);
  }

  createDriver(): Driver {
    return this.driver;
  }

  createQueryCompiler(): QueryCompiler {
    return this.compiler;
  }

  createAdapter(): SqliteAdapter {
    return this.adapter;
  }

  /**
   * Opens the tables for one unit of work, in a transaction that the caller begins and ends on the driver: Kysely's own
   * transactions and savepoints take longer than what they contain.
   */
  openUnit<S>(): { readonly tables: Transaction<S>; readonly close: () => void } {
    let isOpen = true;
    const provideConnection: ConnectionProvider['provideConnection'] = async (consumer) => {
      if (!isOpen || !this.connection.isInTransaction)
        throw new StoreError('The unit of work is over');
      return consumer(this.connection);
    };
    const executor = new DefaultQueryExecutor(this.compiler, this.adapter, { provideConnection });
    const props = { config: { dialect: this }, dialect: this, driver: this.driver, executor };
    return {
      tables: new Transaction<S>(props),
      close: () => {
        isOpen = false;
      },
    };
  }

  // biome-ignore lint/suspicious/noExplicitAny: Kysely's own signature.
  createIntrospector(tables: Kysely<any>): TableNames {
    const select = sql<{ name: string }>`select name from sqlite_schema where type = 'table'`;
    return new TableNames(async () => {
      const { rows } = await select.execute(tables);
      return rows.map(({ name }) => name);
    });
  }
}

/** SQLite prepares a statement again at each run if its limit is a parameter, because its plan depends on it. */
class LiteralLimitCompiler extends SqliteQueryCompiler {
  protected override visitLimit(node: LimitNode): void {
    const { limit } = node;
    if (ValueNode.is(limit) && Number.isInteger(limit.value)) this.append(`limit ${limit.value}`);
    else super.visitLimit(node);
  }
}

class SingleConnectionAdapter extends SqliteAdapter implements DirectAdapter {
  private readonly connection: SqliteConnection;

  constructor(connection: SqliteConnection) {
    super();
    this.connection = connection;
  }

  /** Runs all migrations in one `begin immediate`, which also locks out a second process. */
  override get supportsTransactionalDdl(): boolean {
    return true;
  }

  findFreeConnection(inTransaction: boolean): SqliteConnection | undefined {
    return this.connection.isInTransaction === inTransaction ? this.connection : undefined;
  }
}

const MAX_STATEMENTS = 200;
/** A list of ids makes a long statement, and each length a different one. */
const MAX_STATEMENT_BYTES = 4 * 1024 * 1024;
/** Memory of a prepared statement for each of its characters. */
const BYTES_PER_CHARACTER = 8;

/** Queries run for at most this long before other events are handled. */
const SLICE_MS = 10;

/** Queries are synchronous: code that awaits one after the other would never let the event loop continue. */
class EventLoopTurn {
  private startedAt: number | undefined;

  /** Whether the event loop has been in the same turn for too long since its first query. */
  isBlocked(): boolean {
    const now = performance.now();
    if (this.startedAt !== undefined) return now - this.startedAt > SLICE_MS;
    this.startedAt = now;
    setImmediate(() => {
      this.startedAt = undefined;
    });
    return false;
  }
}

const eventLoop = new EventLoopTurn();

interface Prepared {
  readonly statement: StatementSync;
  /** Of its columns; none if it returns no rows. */
  names: readonly string[];
  /** A row without values. V8 copies it with all columns at once, instead of growing an object with each of them. */
  emptyRow: Row;
}

type Row = Record<string, SQLOutputValue | undefined>;

/** Runs compiled queries on one SQLite handle; caches prepared statements. */
class SqliteConnection implements DatabaseConnection {
  private readonly handle: DatabaseSync;
  private readonly prepared = new LruMap<string, Prepared>({
    maxBytes: MAX_STATEMENT_BYTES,
    maxEntries: MAX_STATEMENTS,
    measure: (_, sql) => textBytes(sql) + BYTES_PER_CHARACTER * sql.length,
  });

  constructor(handle: DatabaseSync) {
    this.handle = handle;
  }

  get isInTransaction(): boolean {
    return this.handle.isTransaction;
  }

  /** Not async: a turn has dozens of queries, and that would take as much memory as their values. */
  executeQuery<R>(query: StatementWithValues): Promise<QueryResult<R>> {
    try {
      const result = this.execute<R>(query);
      return eventLoop.isBlocked() ? nextTurn(result) : Promise.resolve(result);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  private execute<R>({ sql, parameters }: StatementWithValues): QueryResult<R> {
    const prepared = this.prepare(sql);
    const isStorable = parameters.every((value) => storable(value) === value);
    const values = (isStorable ? parameters : parameters.map(storable)) as SQLInputValue[];
    if (prepared.names.length > 0) return { rows: readRows(prepared, values) as R[] };
    const { changes } = prepared.statement.run(...values);
    return { rows: [], numAffectedRows: BigInt(changes) };
  }

  /** Runs a statement without values and rows. */
  run(sql: string): void {
    this.prepare(sql).statement.run();
  }

  // biome-ignore lint/correctness/useYield: required by the interface, but the store never streams rows.
  async *streamQuery<R>(): AsyncIterableIterator<QueryResult<R>> {
    throw new Error('The store does not stream rows');
  }

  private prepare(sql: string): Prepared {
    const known = this.prepared.get(sql);
    if (known) return known;
    const prepared = this.compile(sql);
    this.prepared.set(sql, prepared);
    return prepared;
  }

  private compile(sql: string): Prepared {
    const statement = this.handle.prepare(sql);
    statement.setReturnArrays(true);
    return { statement, ...describeRow(statement) };
  }
}

function describeRow(statement: StatementSync): Pick<Prepared, 'names' | 'emptyRow'> {
  const names = statement.columns().map(({ name }) => name);
  return { names, emptyRow: Object.fromEntries(names.map((name) => [name, undefined])) };
}

/** Creates the rows here: the objects that `node:sqlite` creates take twice as long to create and read. */
function readRows(prepared: Prepared, values: readonly SQLInputValue[]): object[] {
  const rows = prepared.statement.all(...values) as unknown as SQLOutputValue[][];
  // A migration may have added a column.
  if (rows[0] && rows[0].length !== prepared.names.length)
    Object.assign(prepared, describeRow(prepared.statement));
  return rows.map((row) => toObject(prepared, row));
}

function toObject({ names, emptyRow }: Prepared, values: readonly SQLOutputValue[]): object {
  const row: Row = { ...emptyRow };
  for (let i = 0; i < names.length; i++) row[names[i] as string] = values[i];
  return row;
}

const BUSY_TIMEOUT_MS = 5_000;

/** Kysely's driver on one `node:sqlite` handle. Kysely serializes its own users; GroupCommit is the only other one. */
export class SqliteDriver implements Driver {
  private busyTimeoutMs = 0;
  private readonly handle: DatabaseSync;
  private readonly connection: SqliteConnection;

  constructor(handle: DatabaseSync, connection: SqliteConnection) {
    this.handle = handle;
    this.connection = connection;
  }

  async init(): Promise<void> {
    this.setTimeout(BUSY_TIMEOUT_MS);
  }

  async acquireConnection(): Promise<SqliteConnection> {
    return this.connection;
  }

  async beginTransaction(_?: unknown, settings?: TransactionSettings): Promise<void> {
    if (settings?.accessMode === 'read only') return this.connection.run('begin');
    // Takes the write lock at once: a transaction that reads first could not wait for the lock.
    await retryWhileBusy(() => this.beginImmediate());
  }

  async commitTransaction(): Promise<void> {
    this.connection.run('commit');
  }

  async rollbackTransaction(): Promise<void> {
    // SQLite rolls back by itself when the disk is full or fails.
    if (this.isInTransaction) this.connection.run('rollback');
  }

  get isInTransaction(): boolean {
    return this.handle.isTransaction;
  }

  /** Begins a part of a transaction that can be undone alone. */
  beginUnit(): void {
    this.connection.run('savepoint unit');
  }

  endUnit(): void {
    this.connection.run('release unit');
  }

  undoUnit(): void {
    this.connection.run('rollback to unit');
    this.connection.run('release unit');
  }

  async releaseConnection(): Promise<void> {}

  async destroy(): Promise<void> {
    this.handle.close();
  }

  /** A connection that writes never waits in SQLite: after `begin immediate`, there is nothing to wait for. */
  private beginImmediate(): void {
    if (this.busyTimeoutMs !== 0) this.setTimeout(0);
    this.connection.run('begin immediate');
  }

  private setTimeout(ms: number): void {
    this.handle.exec(`pragma busy_timeout = ${ms}`);
    this.busyTimeoutMs = ms;
  }
}

const SQLITE_BUSY = 5;
const LOCK_TIMEOUT_MS = 20_000;

/**
 * Retries while another process has locked the file. Waiting in SQLite would block the event loop, so this waits between
 * attempts instead.
 */
export async function retryWhileBusy<T>(attempt: () => T): Promise<T> {
  const deadline = performance.now() + LOCK_TIMEOUT_MS;
  for (;;) {
    try {
      return attempt();
    } catch (error) {
      if (!isBusy(error)) throw error;
      if (performance.now() > deadline) throw createLockError(error);
      await sleep(1 + Math.random() * 2);
    }
  }
}

function isBusy(error: unknown): boolean {
  // The low byte is the primary code; the rest identifies the lock.
  return (
    error instanceof Error && 'errcode' in error && (Number(error.errcode) & 0xff) === SQLITE_BUSY
  );
}

function createLockError(cause: unknown): StoreError {
  const seconds = LOCK_TIMEOUT_MS / 1000;
  return new StoreError(
    `Another process has locked the SQLite file for ${seconds} s; end it or use PostgreSQL (DATABASE_URL)`,
    { cause },
  );
}
