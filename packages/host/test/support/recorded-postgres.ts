import {
  type CompiledQuery,
  DummyDriver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
} from 'kysely';
import type { Database } from '../../src/store/database.js';
import type { Schema } from '../../src/store/schema/index.js';

/** Collects the statements that PostgreSQL would receive, and answers each with the same rows. */
class RecordingDriver extends DummyDriver {
  readonly statements: CompiledQuery[] = [];

  constructor(private readonly rows: readonly object[]) {
    super();
  }

  override async acquireConnection() {
    const { streamQuery } = await super.acquireConnection();
    const executeQuery = async <R>(query: CompiledQuery) => {
      this.statements.push(query);
      return { rows: this.rows as R[] };
    };
    return { streamQuery, executeQuery };
  }
}

/** A database on PostgreSQL without a server. */
export function openRecordedPostgres(rows: readonly object[] = []) {
  const driver = new RecordingDriver(rows);
  const tables = new Kysely<Schema>({
    dialect: {
      createAdapter: () => new PostgresAdapter(),
      createDriver: () => driver,
      createIntrospector: (db) => new PostgresIntrospector(db),
      createQueryCompiler: () => new PostgresQueryCompiler(),
    },
  });
  const database: Database = {
    engine: 'postgres',
    tables,
    write: (unit) => unit(tables),
    now: Date.now,
    writeFor: (_owner, unit) => unit(tables),
    estimateDelay: () => 0,
    isStoring: () => true,
    read: (unit) => unit(tables),
    migrate: async () => undefined,
    reclaim: async () => undefined,
    close: async () => undefined,
  };
  const context = { database, clock: () => 0, newId: () => 'id' };
  return { context, tables, statements: driver.statements };
}
