import { OracleError } from '@sibyl/protocol';
import type { FileKey, FileStore } from '../store/file-store.js';

export interface FileLimits {
  /** Bytes of one file. */
  readonly maxBytes: number;
  /** Bytes of all files of one user. */
  readonly maxBytesPerUser: number;
  /** Bytes of all files of all users; undefined for no limit. */
  readonly maxBytesTotal: number | undefined;
}

/** What an upload of unknown length reserves at a time, at most. */
const MAX_STEP_BYTES = 8 * 1024 * 1024;
/** How often an upload reports that it is alive. */
const PROGRESS_MS = 60_000;

/** The space that an upload has reserved; grows with it if its length is unknown. */
export class Reservation {
  private reportedAt = performance.now();

  constructor(
    private readonly deps: { readonly files: FileStore; readonly limits: FileLimits },
    private readonly key: FileKey,
    private reserved: number,
  ) {}

  /** Throws if the file becomes larger than allowed, or its user has no space left. */
  async cover(size: number): Promise<void> {
    const { maxBytes, maxBytesPerUser } = this.deps.limits;
    if (size > maxBytes) throw createTooLargeError(maxBytes);
    const isAlive = performance.now() - this.reportedAt < PROGRESS_MS;
    if (size <= this.reserved && isAlive) return;
    const wanted = Math.min(size * 2, size + MAX_STEP_BYTES, maxBytes);
    // Near the limit, no more than is needed.
    const isResized =
      size <= this.reserved
        ? await this.resize(this.reserved)
        : (await this.resize(wanted)) || (await this.resize(size));
    if (!isResized) throw createQuotaError(maxBytesPerUser);
    this.reportedAt = performance.now();
  }

  private async resize(size: number): Promise<boolean> {
    const { files, limits } = this.deps;
    const resized = { ...this.key, size, maxBytes: limits.maxBytesPerUser };
    if (!(await files.resize(resized))) return false;
    this.reserved = size;
    return true;
  }
}

const toMegabytes = (bytes: number) => `${Math.floor(bytes / 1024 ** 2)} MB`;

export const createTooLargeError = (maxBytes: number) =>
  new OracleError('file_too_large', {
    message: `A file may have at most ${toMegabytes(maxBytes)}`,
  });

export const createQuotaError = (maxBytes: number) =>
  new OracleError('file_space_exhausted', {
    message: `Your files may have at most ${toMegabytes(maxBytes)} together; delete some, then upload again`,
  });
