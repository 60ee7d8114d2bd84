import type { Kysely } from 'kysely';
import { DEFAULT_MIGRATION_TABLE, type Migration, Migrator } from 'kysely/migration';
import { StoreError } from '../database/store-error.js';
import { initial } from './0001-initial.js';

/** Every step of the schema, oldest first. Steps are only ever added. */
const MIGRATIONS: Readonly<Record<string, Migration>> = { '0001-initial': initial };

/** Brings the schema up to date; processes that start together take turns. */
// biome-ignore lint/suspicious/noExplicitAny: a migration sees the tables of its own time.
export async function migrate(tables: Kysely<any>): Promise<void> {
  const migrator = new Migrator({
    db: tables,
    provider: { getMigrations: async () => ({ ...MIGRATIONS }) },
  });
  const { error } = await migrator.migrateToLatest();
  if (error === undefined) return;
  const unknown = await unknownMigration(tables);
  if (unknown !== undefined) throw newerDatabase(unknown, error);
  throw error;
}

// biome-ignore lint/suspicious/noExplicitAny: reads Kysely's own table, which is not in the schema.
async function unknownMigration(tables: Kysely<any>): Promise<string | undefined> {
  const done = await tables.selectFrom(DEFAULT_MIGRATION_TABLE).select('name').execute();
  return done.map((row) => String(row.name)).find((name) => !(name in MIGRATIONS));
}

function newerDatabase(migration: string, cause: unknown): StoreError {
  return new StoreError(
    `This database was written by a newer Sibyl (it has migration ${migration}); upgrade Sibyl, or point DATABASE_URL or DATA_DIR at another database`,
    { cause },
  );
}
