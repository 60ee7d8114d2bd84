import type { DatabaseEngine } from '@sibyl/plugin-kit';
import type { Kysely } from 'kysely';
import type { MigrationPlan } from '../migrations/migrate.js';
import type { Schema } from './schema.js';

/** Work on the tables; it awaits queries of the handle it is given and nothing else. */
export type Unit<T> = (tables: Kysely<Schema>) => Promise<T>;

/** One engine, opened and migrated. */
export interface Database {
  readonly engine: DatabaseEngine;
  /** Single reads outside any transaction. */
  readonly tables: Kysely<Schema>;
  /** Runs a unit whole or not at all, and settles only once the outcome is on disk. */
  write<T>(unit: Unit<T>): Promise<T>;
  /**
   * As `write`, but units of one owner never run at the same time, on whichever host: what one counts
   * stays true until it has stored its own.
   */
  writeFor<T>(owner: string, unit: Unit<T>): Promise<T>;
  /** Runs several reads that all see the same moment. */
  read<T>(unit: Unit<T>): Promise<T>;
  /** Brings a schema beside the host's own up to date. */
  migrate(plan: MigrationPlan): Promise<void>;
  /** Gives the space of deleted rows back to the file system, where the engine does not do so itself. */
  reclaim(): Promise<void>;
  close(): Promise<void>;
}
