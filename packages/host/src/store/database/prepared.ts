import type { Compilable, CompiledQuery, DialectAdapter, Kysely, QueryResult } from 'kysely';
import type { Schema } from './schema.js';

type Value = string | number | null | Uint8Array;
type Row<R> = { readonly [Name in keyof R]: Value };

/** What a query is told anew each time it runs: values by their names, or rows of them, in few different numbers. */
type Told<V> = { readonly [Key in keyof V]: V[Key] extends Value ? V[Key] : Row<V[Key]> };

/** Runs a query on a handle of any database, inside a unit or outside. */
export type Prepared<V, R> = (tables: Kysely<Schema>, values: V) => Promise<QueryResult<R>>;

/**
 * Has Kysely build and compile a query once for each database, as doing so costs more than running
 * it. What `build` is given only stands in for the values: it goes into the query as it is.
 */
export function prepared<V extends Told<V>, R>(
  build: (tables: Kysely<Schema>, values: V) => Compilable<R>,
): Prepared<V, R> {
  const compiled = new WeakMap<DialectAdapter, Map<number, CompiledQuery<R>>>();
  return async (tables, values) => {
    const { adapter } = tables.getExecutor();
    const ofSize = compiled.get(adapter) ?? new Map<number, CompiledQuery<R>>();
    const size = Array.isArray(values) ? values.length : 1;
    const query = ofSize.get(size) ?? build(tables, standInFor(values)).compile();
    const parameters = bind(query.parameters, values);
    compiled.set(adapter, ofSize.set(size, query));
    return tables.executeQuery({ ...query, parameters });
  };
}

/** Where a value has its place, until there is one. */
class Placeholder {
  readonly name: string;
  /** Of the row it is in, where there are several. */
  readonly index: number;

  constructor(name: string, index: number) {
    this.name = name;
    this.index = index;
  }
}

function standInFor<V>(values: V): V {
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
  if (bound.includes(undefined)) throw new TypeError('A query was not told all of its values');
  return bound;
}
