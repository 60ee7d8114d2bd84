import type { DatabaseSync, SQLInputValue, StatementSync } from 'node:sqlite';
import type { CompiledQuery, DatabaseConnection, QueryResult } from 'kysely';
import { storable } from '../database/storable.js';

const MAX_STATEMENTS = 200;

interface Prepared {
  readonly statement: StatementSync;
  readonly returnsRows: boolean;
}

/** Runs compiled queries on one SQLite handle and keeps the statements used last prepared. */
export class SqliteConnection implements DatabaseConnection {
  readonly #handle: DatabaseSync;
  readonly #prepared = new Map<string, Prepared>();

  constructor(handle: DatabaseSync) {
    this.#handle = handle;
  }

  async executeQuery<R>({ sql, parameters }: CompiledQuery): Promise<QueryResult<R>> {
    const { statement, returnsRows } = this.#prepare(sql);
    const values = parameters.map(storable) as SQLInputValue[];
    if (returnsRows) return { rows: statement.all(...values) as R[] };
    return { rows: [], numAffectedRows: BigInt(statement.run(...values).changes) };
  }

  // biome-ignore lint/correctness/useYield: the interface asks for it, the store never streams rows.
  async *streamQuery<R>(): AsyncIterableIterator<QueryResult<R>> {
    throw new Error('The store reads whole pages; streaming rows is not built');
  }

  #prepare(sql: string): Prepared {
    const known = this.#prepared.get(sql);
    this.#prepared.delete(sql);
    const prepared = known ?? this.#compile(sql);
    this.#prepared.set(sql, prepared);
    this.#dropOldest();
    return prepared;
  }

  #compile(sql: string): Prepared {
    const statement = this.#handle.prepare(sql);
    return { statement, returnsRows: statement.columns().length > 0 };
  }

  #dropOldest(): void {
    if (this.#prepared.size <= MAX_STATEMENTS) return;
    const [oldest] = this.#prepared.keys();
    if (oldest !== undefined) this.#prepared.delete(oldest);
  }
}
