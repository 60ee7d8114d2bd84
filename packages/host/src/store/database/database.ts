import type { Kysely } from 'kysely';
import type { Schema } from './schema.js';

/** Work on the tables; it awaits queries of the handle it is given and nothing else. */
export type Unit<T> = (tables: Kysely<Schema>) => Promise<T>;

/** One engine, opened and migrated. */
export interface Database {
  /** Single reads outside any transaction. */
  readonly tables: Kysely<Schema>;
  /** Runs a unit whole or not at all, and settles only once the outcome is on disk. */
  write<T>(unit: Unit<T>): Promise<T>;
  /** Runs several reads that all see the same moment. */
  read<T>(unit: Unit<T>): Promise<T>;
  close(): Promise<void>;
}
