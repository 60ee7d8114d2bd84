import type { DatabaseSync } from 'node:sqlite';
import { isStoreFault } from '../store-fault.js';
import type { GroupCommit } from './group-commit.js';

/** Copying a file of this size takes about a second, once. */
const CONVERT_BYTES = 64 * 1024 * 1024;

/** So few that one portion does not hold up the event loop. */
const PAGES_PER_PORTION = 256;

/**
 * Rewrites a file of an older version, which could not shrink. A large one stays as it is until the operator runs
 * VACUUM, and so does one that another process uses now.
 */
export function enableReclaim(handle: DatabaseSync): void {
  if (readPragma(handle, 'auto_vacuum') !== 0) return;
  const bytes = readPragma(handle, 'page_count') * readPragma(handle, 'page_size');
  if (bytes > CONVERT_BYTES) return;
  try {
    handle.exec('pragma auto_vacuum = incremental; vacuum');
  } catch (error) {
    // No reason to refuse to start: the next start tries again.
    if (!isStoreFault(error)) throw error;
  }
}

/** Gives free pages back to the file system, a portion at a time between other writes. */
export async function reclaim(handle: DatabaseSync, commits: GroupCommit): Promise<void> {
  let left = readPragma(handle, 'freelist_count');
  for (let before = left + 1; left > 0 && left < before; ) {
    before = left;
    left = await commits.write(async () => {
      handle.exec(`pragma incremental_vacuum(${PAGES_PER_PORTION})`);
      return readPragma(handle, 'freelist_count');
    });
  }
  try {
    // The file shrinks when the log is folded into it.
    handle.exec('pragma wal_checkpoint(passive)');
  } catch (error) {
    // Another write has begun; its own checkpoint does the same.
    if (!isStoreFault(error)) throw error;
  }
}

function readPragma(handle: DatabaseSync, name: string): number {
  return Number(Object.values(handle.prepare(`pragma ${name}`).get() ?? {})[0]);
}
