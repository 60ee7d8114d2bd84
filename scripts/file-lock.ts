import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { DatabaseSync } from 'node:sqlite';

const LOCK_TIMEOUT_MS = 15 * 60 * 1000;

/** Runs a task while holding a lock on the file; the lock of a process that dies is released at once. */
export async function withFileLock<T>(path: string, task: () => Promise<T>): Promise<T> {
  mkdirSync(dirname(path), { recursive: true });
  // SQLite uses locks of the operating system, which Node itself does not provide.
  const database = new DatabaseSync(path, { timeout: LOCK_TIMEOUT_MS });
  try {
    database.exec('BEGIN EXCLUSIVE');
    return await task();
  } finally {
    database.close();
  }
}
