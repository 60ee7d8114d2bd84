import type { Kysely } from 'kysely';
import type { Unit } from './database.js';
import type { Schema } from './schema.js';

/** Runs reads that all see the same moment, also while other processes write. */
export function readSnapshot<T>(tables: Kysely<Schema>, unit: Unit<T>): Promise<T> {
  return tables
    .transaction()
    .setIsolationLevel('repeatable read')
    .setAccessMode('read only')
    .execute(unit);
}
