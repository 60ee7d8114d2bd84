import type { Database } from './database.js';
import type { FileBytes } from './file-store.js';

/** Stores the bytes of files in pieces of equal size, except the last. */
export interface ChunkStorage {
  readonly name: FileBytes['storage'];
  /** For new files; it bounds the memory of an upload or download. */
  readonly chunkBytes: number;
  put(place: ChunkPlace, data: Uint8Array): Promise<void>;
  /** Undefined if there is no such chunk. */
  get(place: ChunkPlace): Promise<Uint8Array | undefined>;
  /** Deletes all chunks of a file; some may be missing. */
  deleteAll(file: FileBytes): Promise<void>;
}

export interface ChunkPlace {
  readonly owner: string;
  readonly fileId: string;
  readonly n: number;
}

/** Each is written on the main thread, with an fsync. */
const CHUNK_BYTES = 256 * 1024;
/** Rows to delete at once: SQLite visits every page of them. */
const DELETED_ROWS = 8;

/** Stores chunks in the database. */
export class FileChunkStore implements ChunkStorage {
  readonly name = 'database';
  readonly chunkBytes = CHUNK_BYTES;

  constructor(private readonly database: Database) {}

  async put({ owner, fileId, n }: ChunkPlace, data: Uint8Array): Promise<void> {
    await this.database.write((tables) =>
      tables.insertInto('file_chunks').values({ owner, file_id: fileId, n, data }).execute(),
    );
  }

  async get({ owner, fileId, n }: ChunkPlace): Promise<Uint8Array | undefined> {
    const row = await this.database.tables
      .selectFrom('file_chunks')
      .select('data')
      .where('owner', '=', owner)
      .where('file_id', '=', fileId)
      .where('n', '=', n)
      .executeTakeFirst();
    return row?.data;
  }

  async deleteAll(file: FileBytes): Promise<void> {
    const count = countChunks(file);
    for (let from = 0; from < count; from += DELETED_ROWS)
      await this.database.write((tables) =>
        tables
          .deleteFrom('file_chunks')
          .where('owner', '=', file.owner)
          .where('file_id', '=', file.id)
          .where('n', '>=', from)
          .where('n', '<', from + DELETED_ROWS)
          .execute(),
      );
  }
}

/** How many chunks a file may have. */
export const countChunks = ({ size, chunkBytes }: FileBytes) => Math.ceil(size / chunkBytes);
