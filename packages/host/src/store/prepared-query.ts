import type { Compilable, CompiledQuery, DialectAdapter, Kysely, QueryResult } from 'kysely';
import type { Schema } from './schema/index.js';

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
