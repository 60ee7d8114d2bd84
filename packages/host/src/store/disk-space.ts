import { statfs } from 'node:fs/promises';
import { OracleError } from '@sibyl/protocol';

/** Freeing space takes an operator or an hourly job. */
const RETRY_AFTER_SECONDS = 30;

/** The free space of the file system that holds the database. */
export class DiskSpace {
  private readonly minFree: number;
  /** Free bytes; undefined if they cannot be read. */
  readonly readFree: () => Promise<number | undefined>;

  /** `minFree` in bytes; 0 switches the check off. */
  constructor(folder: string, minFree: number) {
    this.minFree = minFree;
    this.readFree = oncePerSecond(() => readFreeBytes(folder));
  }

  /** Whether new sessions and messages are rejected. False if the free space is unknown: then the write decides. */
  async isLow(): Promise<boolean> {
    if (this.minFree === 0) return false;
    const free = await this.readFree();
    return free !== undefined && free < this.minFree;
  }

  /** Throws if space is low. Only for new data: deleting and finishing must still be possible. */
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

const FRESH_MS = 1_000;

/** Wraps a check that any client can trigger: at most one runs at a time, and its result is reused for one second. */
export function oncePerSecond<T>(check: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | undefined;
  let last: { readonly result: Promise<T>; readonly at: number } | undefined;
  return () => {
    if (running) return running;
    if (last && performance.now() - last.at < FRESH_MS) return last.result;
    const result = check();
    running = result;
    const settle = () => {
      running = undefined;
      last = { result, at: performance.now() };
    };
    result.then(settle, settle);
    return result;
  };
}
