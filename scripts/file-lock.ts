import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { DatabaseSync } from 'node:sqlite';

const LOCK_TIMEOUT_MS = 15 * 60 * 1000;

/** Runs a task while no other process runs one under the same file; the lock of a process that dies is free at once. */
export async function withFileLock<T>(path: string, task: () => Promise<T>): Promise<T> {
  mkdirSync(dirname(path), { recursive: true });
  // SQLite has the locks of the operating system, which Node itself does not offer.
  const database = new DatabaseSync(path, { timeout: LOCK_TIMEOUT_MS });
  try {
    database.exec('BEGIN EXCLUSIVE');
    return await task();
  } finally {
    database.close();
  }
}
