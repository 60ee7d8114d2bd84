import { setTimeout as sleep } from 'node:timers/promises';
import { StoreError } from '../database/store-error.js';

const SQLITE_BUSY = 5;
const PATIENCE_MS = 20_000;

/**
 * Repeats `attempt` while another process holds the file. SQLite's own waiting would stop the event
 * loop, so this one waits between attempts instead.
 */
export async function whenFree<T>(attempt: () => T): Promise<T> {
  const deadline = performance.now() + PATIENCE_MS;
  for (;;) {
    try {
      return attempt();
    } catch (error) {
      if (!isBusy(error)) throw error;
      if (performance.now() > deadline) throw stuck(error);
      await sleep(1 + Math.random() * 2);
    }
  }
}

function isBusy(error: unknown): boolean {
  // The low byte is the primary code; the rest tells which lock was taken.
  return (
    error instanceof Error && 'errcode' in error && (Number(error.errcode) & 0xff) === SQLITE_BUSY
  );
}

function stuck(cause: unknown): StoreError {
  const seconds = PATIENCE_MS / 1000;
  return new StoreError(
    `Another process has kept the SQLite file locked for ${seconds} s; end it or use PostgreSQL (DATABASE_URL)`,
    { cause },
  );
}
