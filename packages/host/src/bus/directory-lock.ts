import { closeSync, mkdirSync, openSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { ConfigError } from '@sibyl/server-kit/environment';

const FILE = 'host.lock';
const SQLITE_BUSY = 5;
/** A host that was just killed may still be ending. */
const WAIT_MS = 2_000;
const RETRY_MS = 50;

/**
 * Keeps other hosts from using a data directory. The lock is the one that SQLite takes on a file: the operating system
 * releases it however the process ends, and it does not depend on process ids, which are reused and differ between
 * containers.
 */
export class DirectoryLock {
  private readonly handle: DatabaseSync;

  private constructor(handle: DatabaseSync) {
    this.handle = handle;
  }

  /** Throws a ConfigError if another host is using the directory. Creates the directory if needed. */
  static async acquire(dataDir: string): Promise<DirectoryLock> {
    const path = createLockFile(dataDir);
    const deadline = performance.now() + WAIT_MS;
    for (;;) {
      const handle = tryLock(path);
      if (handle) return new DirectoryLock(handle);
      if (performance.now() > deadline) throw createInUseError(dataDir);
      await sleep(RETRY_MS);
    }
  }

  /** Repeated calls have no effect. */
  release(): void {
    if (this.handle.isOpen) this.handle.close();
  }
}

function createLockFile(dataDir: string): string {
  const path = join(dataDir, FILE);
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  try {
    closeSync(openSync(path, 'wx', 0o600));
  } catch (error) {
    // An existing file is only opened by SQLite: closing it here would release the lock of this process.
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  return path;
}

/** Undefined if another host has the lock. */
function tryLock(path: string): DatabaseSync | undefined {
  const handle = new DatabaseSync(path, { timeout: 0 });
  try {
    // A transaction that never ends, and never writes.
    handle.exec('begin exclusive');
    return handle;
  } catch (error) {
    handle.close();
    if ((error as { errcode?: number }).errcode === SQLITE_BUSY) return undefined;
    throw error;
  }
}

function createInUseError(dataDir: string): ConfigError {
  return new ConfigError('host', [
    {
      subject: 'DATA_DIR (host)',
      problem: `another host is using ${resolve(dataDir)}`,
      remedy:
        'Stop the other host, or set DATA_DIR to another folder. Several hosts can share a PostgreSQL database: set DATABASE_URL',
    },
  ]);
}
