import { DatabaseSync, type SQLInputValue } from 'node:sqlite';
import { Kysely, type SqliteDatabase, SqliteDialect } from 'kysely';
import type { OraclePlugin } from '../plugin.js';
import type { PluginDatabase } from '../plugin-database.js';
import { OwnTables } from '../rules/own-tables.js';

// biome-ignore lint/suspicious/noExplicitAny: each plugin names its own tables.
type Tables = Kysely<any>;

/** One SQLite database in memory for all plugins of a test. */
export function openMemoryDatabase(): Tables {
  const handle = new DatabaseSync(':memory:', { enableForeignKeyConstraints: true });
  return new Kysely({ dialect: new SqliteDialect({ database: sqliteDatabaseOf(handle) }) });
}

/** Makes a plugin's tables and opens them, and no others. */
export async function openPluginTables(
  database: Tables,
  { name, migrations = {} }: OraclePlugin,
  plugins: readonly OraclePlugin[],
): Promise<PluginDatabase> {
  const others = plugins.map((plugin) => plugin.name);
  const tables = database.withPlugin(new OwnTables(name, others));
  for (const step of Object.values(migrations))
    await tables.transaction().execute((handle) => step(handle, 'sqlite'));
  return {
    engine: 'sqlite',
    tables,
    write: (unit) => tables.transaction().execute(unit),
    read: (unit) => tables.transaction().execute(unit),
  };
}

function sqliteDatabaseOf(handle: DatabaseSync): SqliteDatabase {
  return {
    close: () => handle.close(),
    prepare: (text) => {
      const statement = handle.prepare(text);
      const valuesOf = (parameters: readonly unknown[]) => parameters as SQLInputValue[];
      return {
        reader: statement.columns().length > 0,
        all: (parameters) => statement.all(...valuesOf(parameters)),
        run: (parameters) => statement.run(...valuesOf(parameters)),
        iterate: (parameters) => statement.iterate(...valuesOf(parameters)),
      };
    },
  };
}
