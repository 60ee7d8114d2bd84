import { chmodSync, closeSync, mkdirSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { Kysely } from 'kysely';
import type { Database } from '../database/database.js';
import { readSnapshot } from '../database/read-snapshot.js';
import type { Schema } from '../database/schema.js';
import { StoreError } from '../database/store-error.js';
import { migrate } from '../migrations/migrate.js';
import { GroupCommit } from './group-commit.js';
import { SqliteDialect } from './sqlite-dialect.js';
import { whenFree } from './when-free.js';

const OWNER_ONLY = 0o600;

/** Opens `sibyl.db` in `dataDir`, making both if needed, readable by this user alone. */
export async function openSqlite(dataDir: string): Promise<Database> {
  const handle = await openHandle(dataDir);
  const tables = new Kysely<Schema>({ dialect: new SqliteDialect(handle) });
  try {
    await migrate(tables);
  } catch (error) {
    await tables.destroy();
    throw error;
  }
  return asDatabase(tables);
}

async function openHandle(dataDir: string): Promise<DatabaseSync> {
  const path = join(dataDir, 'sibyl.db');
  try {
    makePrivateFile(dataDir, path);
    const handle = new DatabaseSync(path, { timeout: 0, enableForeignKeyConstraints: true });
    await whenFree(() => handle.exec('pragma journal_mode = wal; pragma synchronous = full'));
    return handle;
  } catch (error) {
    if (error instanceof StoreError) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    throw new StoreError(`Cannot open the SQLite file ${path}: ${reason}; check DATA_DIR`, {
      cause: error,
    });
  }
}

/** SQLite gives -wal and -shm the mode of the main file. A directory that exists keeps its mode. */
function makePrivateFile(dataDir: string, path: string): void {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  closeSync(openSync(path, 'a', OWNER_ONLY));
  chmodSync(path, OWNER_ONLY);
}

function asDatabase(tables: Kysely<Schema>): Database {
  const commits = new GroupCommit(tables);
  return {
    tables,
    write: (unit) => commits.write(unit),
    read: (unit) => readSnapshot(tables, unit),
    close: async () => {
      await commits.settled();
      await tables.destroy();
    },
  };
}
