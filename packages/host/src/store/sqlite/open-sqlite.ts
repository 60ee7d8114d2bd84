import { chmodSync, closeSync, mkdirSync, openSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { type Kysely, sql } from 'kysely';
import type { Database } from '../database/database.js';
import { readSnapshot } from '../database/read-snapshot.js';
import type { Schema } from '../database/schema.js';
import { hostSchema, migrate } from '../migrations/migrate.js';
import { isStoreFault } from '../store-fault.js';
import { GroupCommit } from './group-commit.js';
import { enableReclaim, reclaim } from './reclaim.js';
import { cannotOpen, sqliteFileIn, tablesOf } from './sqlite-file.js';
import { whenFree } from './when-free.js';

const OWNER_ONLY = 0o600;

/** The first takes effect in a file that is new; the last bounds the log that a burst of writes leaves behind. */
const SETTINGS = `
  pragma auto_vacuum = incremental;
  pragma journal_mode = wal;
  pragma synchronous = full;
  pragma journal_size_limit = ${16 * 1024 * 1024};
`;

/** Opens `sibyl.db` in `dataDir`, making both if needed, readable by this user alone. */
export async function openSqlite(dataDir: string): Promise<Database> {
  const path = sqliteFileIn(dataDir);
  const handle = await openWriter(dataDir, path);
  const writer = tablesOf(handle);
  try {
    await migrate(writer, hostSchema);
    enableReclaim(handle);
    return asDatabase({ handle, writer, reader: await openReader(path) });
  } catch (error) {
    await writer.destroy();
    throw isStoreFault(error) ? cannotOpen(path, error) : error;
  }
}

/** Reads have a connection of their own: they need not wait while another process writes. */
async function openReader(path: string): Promise<Kysely<Schema>> {
  const reader = tablesOf(new DatabaseSync(path, { readOnly: true }));
  // Kysely would not close what has never been used.
  await sql`select 1`.execute(reader);
  return reader;
}

async function openWriter(dataDir: string, path: string): Promise<DatabaseSync> {
  try {
    makePrivateFile(dataDir, path);
    const handle = new DatabaseSync(path, { timeout: 0, enableForeignKeyConstraints: true });
    await whenFree(() => handle.exec(SETTINGS));
    return handle;
  } catch (error) {
    throw cannotOpen(path, error);
  }
}

/** SQLite gives -wal and -shm the mode of the main file. A directory that exists keeps its mode. */
function makePrivateFile(dataDir: string, path: string): void {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  closeSync(openSync(path, 'a', OWNER_ONLY));
  chmodSync(path, OWNER_ONLY);
}

interface Connections {
  readonly handle: DatabaseSync;
  readonly writer: Kysely<Schema>;
  readonly reader: Kysely<Schema>;
}

function asDatabase({ handle, writer, reader }: Connections): Database {
  const commits = new GroupCommit(writer);
  return {
    engine: 'sqlite',
    tables: reader,
    write: (unit) => commits.write(unit),
    // SQLite has one writer at a time, for all owners.
    writeFor: (_owner, unit) => commits.write(unit),
    read: (unit) => readSnapshot(reader, unit),
    migrate: (plan) => migrate(writer, plan),
    reclaim: () => reclaim(handle, commits),
    close: async () => {
      await commits.settled();
      // The writer last, since it folds the log into the main file.
      await reader.destroy();
      await writer.destroy();
    },
  };
}
