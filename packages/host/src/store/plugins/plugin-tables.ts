import type { PluginDatabase, PluginMigrations } from '@sibyl/plugin-kit';
import { OwnTables, tablePrefixOf } from '@sibyl/plugin-kit/rules';
import type { Migration } from 'kysely/migration';
import type { Database } from '../database/database.js';
import type { MigrationPlan } from '../migrations/migrate.js';

export interface PluginTablesRequest {
  readonly plugin: string;
  readonly migrations: PluginMigrations;
  /** Names of all plugins, so that none takes another's tables for its own. */
  readonly plugins: readonly string[];
}

/** The tables that plugins make for themselves. */
export class PluginTables {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Brings the plugin's tables up to date and opens them, and no others. */
  async open(request: PluginTablesRequest): Promise<PluginDatabase> {
    const { engine, tables, write, read, migrate } = this.#database;
    const own = new OwnTables(request.plugin, request.plugins);
    const plan = planOf(request, (migration) => ({
      up: (handle) => migration(handle.withPlugin(own), engine),
    }));
    if (Object.keys(plan.steps).length > 0) await migrate(plan);
    return {
      engine,
      tables: tables.withPlugin(own),
      write: (unit) => write((handle) => unit(handle.withPlugin(own))),
      read: (unit) => read((handle) => unit(handle.withPlugin(own))),
    };
  }
}

function planOf(
  { plugin, migrations }: PluginTablesRequest,
  stepOf: (migration: PluginMigrations[string]) => Migration,
): MigrationPlan {
  const prefix = tablePrefixOf(plugin);
  const steps = Object.entries(migrations).map(([name, step]) => [name, stepOf(step)]);
  return {
    author: `plugin ${plugin}`,
    steps: Object.fromEntries(steps),
    table: `${prefix}migration`,
    lockTable: `${prefix}migration_lock`,
  };
}
