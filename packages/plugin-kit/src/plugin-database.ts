import type { Kysely } from 'kysely';

export type DatabaseEngine = 'sqlite' | 'postgres';

/** Work on a plugin's tables; it awaits queries of the handle it is given and nothing else. */
// biome-ignore lint/suspicious/noExplicitAny: each plugin names its own tables.
export type Unit<T, Tables = any> = (tables: Kysely<Tables>) => Promise<T>;

/** The plugin's own tables, in the host's store; their names start with the plugin's, `-` written `_`. */
// biome-ignore lint/suspicious/noExplicitAny: each plugin names its own tables.
export interface PluginDatabase<Tables = any> {
  readonly engine: DatabaseEngine;
  /** Single reads outside any transaction. */
  readonly tables: Kysely<Tables>;
  /** Runs a unit whole or not at all, and settles only once the outcome is on disk. */
  write<T>(unit: Unit<T, Tables>): Promise<T>;
  /** Runs several reads that all see the same moment. */
  read<T>(unit: Unit<T, Tables>): Promise<T>;
}

/** Steps of the plugin's schema by name, oldest first. Steps are only ever added. */
export type PluginMigrations = Readonly<Record<string, PluginMigration>>;

// biome-ignore lint/suspicious/noExplicitAny: a step sees the tables of its own time.
export type PluginMigration = (tables: Kysely<any>, engine: DatabaseEngine) => Promise<void>;
