import { DatabaseSync } from 'node:sqlite';
import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import { hostSchema, type MigrationPlan, migrate } from '../../src/store/migrations/migrate.js';
import { createTables, toSqlitePath } from '../../src/store/sqlite/sqlite.js';
import { createTestDatabase, type Engine, type TestDatabase } from './test-database.js';

/** PostgreSQL accepts at most 65,535 parameters. */
const ROWS_PER_INSERT = 500;

export interface OldDatabaseRequest {
  /** The migrations of that version. */
  readonly steps: MigrationPlan['steps'];
  /** By table; parents first. */
  readonly rows: Readonly<Record<string, readonly object[]>>;
}

/** A database as an older version left it. */
export async function openOldDatabase(
  engine: Engine,
  { steps, rows }: OldDatabaseRequest,
): Promise<TestDatabase> {
  const database = await createTestDatabase(engine);
  const { dataDir, databaseUrl } = database.options;
  // biome-ignore lint/suspicious/noExplicitAny: the tables of an older version.
  const tables: Kysely<any> =
    databaseUrl === undefined
      ? createTables(new DatabaseSync(toSqlitePath(dataDir)))
      : new Kysely({
          dialect: new PostgresDialect({ pool: new pg.Pool({ connectionString: databaseUrl }) }),
        });
  await migrate(tables, { ...hostSchema, steps });
  for (const [table, values] of Object.entries(rows))
    for (let from = 0; from < values.length; from += ROWS_PER_INSERT)
      await tables
        .insertInto(table)
        .values(values.slice(from, from + ROWS_PER_INSERT))
        .execute();
  await tables.destroy();
  return database;
}
