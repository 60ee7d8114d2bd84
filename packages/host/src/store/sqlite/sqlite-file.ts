import { join } from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { Kysely } from 'kysely';
import type { Schema } from '../database/schema.js';
import { StoreError } from '../database/store-error.js';
import { classifyStoreFault } from '../store-fault.js';
import { SqliteDialect } from './sqlite-dialect.js';

export const sqliteFileIn = (dataDir: string): string => join(dataDir, 'sibyl.db');

export const tablesOf = (handle: DatabaseSync): Kysely<Schema> =>
  new Kysely<Schema>({ dialect: new SqliteDialect(handle) });

/** Names the file to the operator, who may know the folder alone. */
export function cannotOpen(path: string, error: unknown): StoreError {
  if (error instanceof StoreError) return error;
  const reason = error instanceof Error ? error.message : String(error);
  const remedy =
    classifyStoreFault(error) === 'full'
      ? 'free some space on its disk, then start again'
      : 'check DATA_DIR';
  return new StoreError(`Cannot open the SQLite file ${path}: ${reason}; ${remedy}`, {
    cause: error,
  });
}
