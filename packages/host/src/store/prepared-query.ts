import type { Compilable, CompiledQuery, DialectAdapter, Kysely, QueryResult } from 'kysely';
import type { Schema } from './database.js';

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
  return async (tables, values) => {
    const adapter: Partial<DirectAdapter> & DialectAdapter = tables.getExecutor().adapter;
    const bySize = compiled.get(adapter) ?? new Map<number, CompiledQuery<R>>();
    const size = Array.isArray(values) ? values.length : 1;
    const query = bySize.get(size) ?? build(tables, toPlaceholders(values)).compile();
    const parameters = bind(query.parameters, values);
    compiled.set(adapter, bySize.set(size, query));
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
  const bound = parameters.map((parameter) =>
    parameter instanceof Placeholder ? rows[parameter.index]?.[parameter.name] : parameter,
  );
  if (bound.includes(undefined)) throw new TypeError('A value of a query is missing');
  return bound;
}
