import { randomInt, randomUUID } from 'node:crypto';
import type { DatabaseEngine } from '@sibyl/plugin-kit';
import type { AnyTable } from '@sibyl/plugin-kit/tables';
import type { Compilable, CompiledQuery, DialectAdapter, Kysely, QueryResult } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { DiskSpace } from './disk-space.js';
import type { RemovalLog } from './own-data/removal-log.js';
import type { Schema } from './schema/index.js';

/** A unit of work; it awaits only queries on the given tables, and may run again if the database rolls it back. */
export type Unit<T> = (tables: Kysely<Schema>) => Promise<T>;

/** How a unit of work is queued. */
export interface WriteOptions<T> {
  /** Called as soon as others see the outcome, if that is before it is on disk. */
  readonly onCommit?: ((value: T) => void) | undefined;
  /** Before all that wait already: the end of work that was accepted. */
  readonly isFirst?: boolean | undefined;
}

/** The tables of the host or of a plugin, the steps from earlier versions of them, and where the database records these. */
export interface MigrationPlan {
  /** Who wrote the steps, for error messages. */
  readonly author: string;
  /** As this version uses them. */
  readonly tables: readonly AnyTable[];
  /** What changed since the first version, by name, oldest first. Steps are only ever added. */
  readonly steps: Readonly<Record<string, Migration>>;
  readonly table: string;
  readonly lockTable: string;
}

/** One engine, opened and migrated. */
export interface Database {
  readonly engine: DatabaseEngine;
  /** The current time in milliseconds, by the clock of the database: all hosts that share it agree on it. */
  readonly now: () => number;
  /** Single reads outside any transaction. */
  readonly tables: Kysely<Schema>;
  /** Runs a unit of work in a transaction; settles once the outcome is on disk. */
  write<T>(unit: Unit<T>, options?: WriteOptions<T>): Promise<T>;
  /**
   * As `write`, but units of one owner never run at the same time, on any host: rows that a unit has counted do not
   * change until it is committed.
   */
  writeFor<T>(owner: string, unit: Unit<T>, options?: WriteOptions<T>): Promise<T>;
  /** How long a write that is submitted now would probably wait until it begins, in milliseconds. */
  estimateDelay(): number;
  /** Whether writes wait only for others: part of one was stored within the last `ms`. */
  isStoring(ms: number): boolean;
  /** Runs several reads on one snapshot. */
  read<T>(unit: Unit<T>): Promise<T>;
  /** Migrates a schema other than that of the host. */
  migrate(plan: MigrationPlan): Promise<void>;
  /** Returns the space of deleted rows to the file system, if the engine does not do so itself. */
  reclaim(log?: ReclaimedLog): Promise<void>;
  close(): Promise<void>;
}

/** `behind`: the next start will migrate the database. */
export type DatabaseState = 'absent' | 'behind' | 'ready';

/** Runs reads on one snapshot, also while other processes write. */
export function readSnapshot<T>(tables: Kysely<Schema>, unit: Unit<T>): Promise<T> {
  return tables
    .transaction()
    .setIsolationLevel('repeatable read')
    .setAccessMode('read only')
    .execute(unit);
}

const NUL = '\u0000';

/**
 * Replaces NUL characters by U+FFFD: PostgreSQL rejects them in text, and a request with one must not fail on either
 * engine.
 */
export function storable(value: unknown): unknown {
  if (typeof value !== 'string' || !value.includes(NUL)) return value;
  return value.replaceAll(NUL, '\uFFFD');
}

/** The log of SQLite: on a full disk, deleting needs the space that it has. */
export type ReclaimedLog = 'emptied' | 'kept';

export interface StoreContext {
  readonly database: Database;
  /** The current time in milliseconds. */
  readonly clock: () => number;
  readonly newId: () => string;
  /** Unset if the database is not on a disk of this host. */
  readonly disk?: DiskSpace | undefined;
  readonly removals?: RemovalLog | undefined;
}

type Value = string | number | null | Uint8Array;
type Row<R> = { readonly [Name in keyof R]: Value };

/** The parameters of a query: values by name, or an array of rows of values with few different lengths. */
type QueryValues<V> = { readonly [Key in keyof V]: V[Key] extends Value ? V[Key] : Row<V[Key]> };

/** Runs a query on the tables of any database, inside or outside of a unit of work. */
export type PreparedQuery<V, R> = (tables: Kysely<Schema>, values: V) => Promise<QueryResult<R>>;

/** What is executed, without how it was built. */
export type StatementWithValues = Pick<CompiledQuery, 'sql' | 'parameters'>;

/** An engine with one connection: a prepared query need not ask for it, which takes Kysely longer than the query. */
export interface DirectAdapter extends DialectAdapter {
  /** The connection, unless it is in use by a transaction that the query does not belong to. */
  findFreeConnection(
    inTransaction: boolean,
  ): { executeQuery<R>(query: StatementWithValues): Promise<QueryResult<R>> } | undefined;
}

/**
 * Builds and compiles a query once for each database, because that costs more than running it. `build` receives
 * placeholders instead of values, and must pass them to the query unchanged.
 */
export function prepareQuery<V extends QueryValues<V>, R>(
  build: (tables: Kysely<Schema>, values: V) => Compilable<R>,
): PreparedQuery<V, R> {
  const compiled = new WeakMap<DialectAdapter, Map<number, CompiledQuery<R>>>();
  const compile = (tables: Kysely<Schema>, adapter: DialectAdapter, values: V, size: number) => {
    const query = build(tables, toPlaceholders(values)).compile();
    if (query.parameters.includes(undefined)) throw createMissingError();
    const bySize = compiled.get(adapter) ?? new Map<number, CompiledQuery<R>>();
    compiled.set(adapter, bySize.set(size, query));
    return query;
  };
  // Not async: a further promise would delay every query.
  return (tables, values) => {
    const adapter: Partial<DirectAdapter> & DialectAdapter = tables.getExecutor().adapter;
    const size = Array.isArray(values) ? values.length : 1;
    const query = compiled.get(adapter)?.get(size) ?? compile(tables, adapter, values, size);
    const parameters = bind(query.parameters, values);
    const connection = adapter.findFreeConnection?.(tables.isTransaction);
    return connection
      ? connection.executeQuery({ sql: query.sql, parameters })
      : tables.executeQuery({ ...query, parameters });
  };
}

/** A parameter of a query without its value. */
class Placeholder {
  readonly name: string;
  /** Of its row, if there are several. */
  readonly index: number;

  constructor(name: string, index: number) {
    this.name = name;
    this.index = index;
  }
}

function toPlaceholders<V>(values: V): V {
  return (
    Array.isArray(values) ? values.map(placeholders) : placeholders(values as object, 0)
  ) as V;
}

function placeholders(row: object, index: number): object {
  return Object.fromEntries(Object.keys(row).map((name) => [name, new Placeholder(name, index)]));
}

function bind(parameters: readonly unknown[], values: unknown): unknown[] {
  const rows = (Array.isArray(values) ? values : [values]) as Record<string, unknown>[];
  return parameters.map((parameter) => {
    if (!(parameter instanceof Placeholder)) return parameter;
    const value = rows[parameter.index]?.[parameter.name];
    if (value === undefined) throw createMissingError();
    return value;
  });
}

const createMissingError = () => new TypeError('A value of a query is missing');

const COUNTER_MAX = 0xfff;

/**
 * Creates UUIDs of version 7 that sort by creation, also within one millisecond and if the clock stops or goes back.
 */
export function createIdSource(clock: () => number): () => string {
  let time = 0;
  let counter = 0;
  return () => {
    const now = clock();
    if (now > time) {
      time = now;
      // A random start, so that ids of one millisecond cannot be guessed from each other.
      counter = randomInt((COUNTER_MAX >> 1) + 1);
    } else if (counter < COUNTER_MAX) {
      counter += 1;
    } else {
      time += 1;
      counter = 0;
    }
    const hex = time.toString(16).padStart(12, '0');
    const count = counter.toString(16).padStart(3, '0');
    // The variant and the random bits are the same in version 4, which Node creates from a pool of random bytes.
    return `${hex.slice(0, 8)}-${hex.slice(8)}-7${count}-${randomUUID().slice(19)}`;
  };
}
