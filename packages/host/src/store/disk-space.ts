import { statfs } from 'node:fs/promises';
import { OracleError } from '@sibyl/protocol';
import { oncePerSecond } from './once-per-second.js';

/** Cleaning up takes a person or an hourly job. */
const RETRY_AFTER_SECONDS = 30;

/** The free space of the file system that holds the database. */
export class DiskSpace {
  private readonly minFree: number;
  private readonly readFree: () => Promise<number | undefined>;

  /** `minFree` in bytes; 0 switches the check off. */
  constructor(folder: string, minFree: number) {
    this.minFree = minFree;
    this.readFree = oncePerSecond(() => readFreeBytes(folder));
  }

  /** Whether new sessions and messages are refused. Space that cannot be read counts as enough: the write decides. */
  async isLow(): Promise<boolean> {
    if (this.minFree === 0) return false;
    const free = await this.readFree();
    return free !== undefined && free < this.minFree;
  }

  /** Refuses what would take more space; deleting and ending what is there must still be possible. */
  async assertRoom(): Promise<void> {
    if (await this.isLow()) {
      throw new OracleError('disk_full', { retryAfterSeconds: RETRY_AFTER_SECONDS });
    }
  }
}

async function readFreeBytes(folder: string): Promise<number | undefined> {
  try {
    const { bavail, bsize } = await statfs(folder);
    return bavail * bsize;
  } catch {
    return undefined;
  }
}
