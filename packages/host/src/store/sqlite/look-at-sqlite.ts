import { existsSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import type { DatabaseState } from '../database/database-state.js';
import { hostSchema, isBehind } from '../migrations/migrate.js';
import { cannotOpen, sqliteFileIn, tablesOf } from './sqlite-file.js';
import { whenFree } from './when-free.js';

/** Sees whether the file in `dataDir` can be read and written, and leaves it as it is. */
export async function lookAtSqlite(dataDir: string): Promise<DatabaseState> {
  const path = sqliteFileIn(dataDir);
  if (!existsSync(path)) return 'absent';
  try {
    return await look(path);
  } catch (error) {
    throw cannotOpen(path, error);
  }
}

async function look(path: string): Promise<DatabaseState> {
  const url = pathToFileURL(path);
  // Makes no file; one opened for reading alone would leave its -wal and -shm behind.
  url.searchParams.set('mode', 'rw');
  const handle = new DatabaseSync(url, { timeout: 0 });
  try {
    await whenFree(() => handle.exec('begin immediate; rollback'));
    return (await isBehind(tablesOf(handle), hostSchema)) ? 'behind' : 'ready';
  } finally {
    handle.close();
  }
}
