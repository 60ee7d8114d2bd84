import type { DatabaseSync, SQLInputValue, StatementSync } from 'node:sqlite';
import { LruMap, textBytes } from '@sibyl/server-kit';
import type { CompiledQuery, DatabaseConnection, QueryResult } from 'kysely';
import { storable } from '../database/storable.js';

const MAX_STATEMENTS = 200;
/** A long list of ids makes a long statement, and each length is one of its own. */
const MAX_STATEMENT_BYTES = 4 * 1024 * 1024;
/** What SQLite keeps of a statement, for each character of it. */
const BYTES_PER_CHARACTER = 8;

interface Prepared {
  readonly statement: StatementSync;
  readonly returnsRows: boolean;
}

/** Runs compiled queries on one SQLite handle and keeps the statements used last prepared. */
export class SqliteConnection implements DatabaseConnection {
  readonly #handle: DatabaseSync;
  readonly #prepared = new LruMap<string, Prepared>({
    maxBytes: MAX_STATEMENT_BYTES,
    maxEntries: MAX_STATEMENTS,
    sizeOf: (_, sql) => textBytes(sql) + BYTES_PER_CHARACTER * sql.length,
  });

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
    if (known) return known;
    const prepared = this.#compile(sql);
    this.#prepared.set(sql, prepared);
    return prepared;
  }

  #compile(sql: string): Prepared {
    const statement = this.#handle.prepare(sql);
    return { statement, returnsRows: statement.columns().length > 0 };
  }
}
