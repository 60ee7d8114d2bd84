import { OracleError } from '@sibyl/protocol';
import { type ExpressionBuilder, type Kysely, sql } from 'kysely';
import { type Database, prepareQuery, type StoreContext } from './database.js';
import { type FileRow, files } from './schema/files.js';
import type { Schema } from './schema/index.js';

/** Identifies a file; a file of another owner does not exist for a caller. */
export interface FileKey {
  readonly owner: string;
  readonly fileId: string;
}

/** A file; times in milliseconds. */
export interface StoredFile {
  readonly id: string;
  readonly owner: string;
  readonly name: string;
  readonly mediaType: string;
  readonly size: number;
  /** SHA-256, hexadecimal. */
  readonly hash: string;
  readonly storage: FileRow['storage'];
  readonly chunkBytes: number;
  readonly text: StoredText;
  readonly createdAt: number;
}

/** What became of the text of a file. */
export interface StoredText {
  readonly status: FileRow['text_status'];
  readonly unit?: NonNullable<FileRow['text_unit']>;
  readonly count?: number;
  readonly isComplete?: boolean;
  readonly error?: string;
}

/** Where the bytes of a file are; `size` may be more than is stored while it is being uploaded. */
export type FileBytes = Pick<StoredFile, 'owner' | 'id' | 'size' | 'storage' | 'chunkBytes'>;

const findAny = prepareQuery((tables, { owner }: { readonly owner: string }) =>
  tables
    .selectFrom('files')
    .select('id')
    .where('owner', '=', owner)
    .where('status', '=', 'ready')
    .limit(1),
);

/** A file counts at least this much: its row and index entries take space too. */
const MIN_CHARGE_BYTES = 4096;

/** An upload that has not reported progress for this long has ended, although its host may be running. */
const STALE_UPLOAD_MS = 10 * 60 * 1000;

interface NewUpload {
  readonly owner: string;
  readonly name: string;
  /** Now, if it is missing. */
  readonly createdAt?: number | undefined;
  /** The host that receives it. */
  readonly hostId?: string | undefined;
  /** Bytes to reserve. */
  readonly size: number;
  readonly storage: FileRow['storage'];
  readonly chunkBytes: number;
  /** Bytes that all files of the owner may have. */
  readonly maxBytes: number;
}

interface Leftovers {
  /** By default of all users. */
  readonly owner?: string;
  readonly deadHosts?: readonly string[];
}

interface FilePage {
  readonly owner: string;
  readonly limit: number;
  readonly offset?: number;
  readonly before?: string | undefined;
}

/** What is known of a file once all its bytes are stored. */
interface FinishedUpload extends FileKey {
  readonly size: number;
  readonly hash: string;
  readonly mediaType: string;
  readonly textStatus: FileRow['text_status'];
}

/** The files of each user, without their bytes. */
export class FileStore {
  constructor(private readonly context: StoreContext) {}

  /** Reserves space for an upload; undefined if the owner has too little left, also with concurrent requests. */
  async begin(upload: NewUpload): Promise<FileKey | undefined> {
    const id = this.context.newId();
    try {
      return await this.insert(id, upload);
    } catch (error) {
      // It is stored if only the reply to its commit was lost, and would keep the space.
      await this.delete({ owner: upload.owner, fileId: id }, 'uploading').catch(() => undefined);
      throw error;
    }
  }

  private insert(
    id: string,
    { maxBytes, chunkBytes, createdAt, hostId, ...upload }: NewUpload,
  ): Promise<FileKey | undefined> {
    const { database, clock } = this.context;
    return database.writeFor(upload.owner, async (tables) => {
      const now = clock();
      const used = await this.sumBytes(tables, upload.owner);
      if (used + toCharge(upload.size) > maxBytes) return undefined;
      const row = files.toRow({
        ...upload,
        ...{ id, chunkBytes, hostId },
        mediaType: 'application/octet-stream',
        status: 'uploading',
        textStatus: 'none',
        attempts: 0,
        createdAt: createdAt ?? now,
        updatedAt: now,
      });
      await tables.insertInto('files').values(row).execute();
      return { owner: row.owner, fileId: row.id };
    });
  }

  /** Changes what an upload has reserved, and shows that it is alive; false if the owner has too little left. */
  resize(upload: FileKey & { readonly size: number; readonly maxBytes: number }): Promise<boolean> {
    const { owner, fileId, size, maxBytes } = upload;
    return this.context.database.writeFor(owner, async (tables) => {
      const others = await this.sumBytes(tables, owner, fileId);
      if (others + toCharge(size) > maxBytes) return false;
      const { numUpdatedRows } = await tables
        .updateTable('files')
        .set({ size, updated_at: this.context.clock() })
        .where('owner', '=', owner)
        .where('id', '=', fileId)
        .where('status', '=', 'uploading')
        .executeTakeFirstOrThrow();
      if (numUpdatedRows === 0n) throw createLostError();
      return true;
    });
  }

  /** Makes an upload a file; returns the file that the owner has already, if its bytes are the same. */
  finish(upload: FinishedUpload): Promise<StoredFile> {
    const { owner, fileId, size, hash, mediaType, textStatus } = upload;
    return this.context.database.writeFor(owner, async (tables) => {
      const known = await selectFiles(tables, owner).where('hash', '=', hash).executeTakeFirst();
      if (known) return toFile(known);
      const row = await tables
        .updateTable('files')
        .set({
          size,
          hash,
          host_id: null,
          media_type: mediaType,
          status: 'ready',
          text_status: textStatus,
        })
        .where('owner', '=', owner)
        .where('id', '=', fileId)
        .where('status', '=', 'uploading')
        .returningAll()
        .executeTakeFirst();
      if (!row) throw createLostError();
      return toFile(row);
    });
  }

  async find(
    { owner, fileId }: FileKey,
    status: FileRow['status'] = 'ready',
  ): Promise<StoredFile | undefined> {
    const row = await selectFiles(this.context.database.tables, owner, status)
      .where('id', '=', fileId)
      .executeTakeFirst();
    return row && toFile(row);
  }

  async findSame(owner: string, hash: string): Promise<StoredFile | undefined> {
    const row = await selectFiles(this.context.database.tables, owner)
      .where('hash', '=', hash)
      .executeTakeFirst();
    return row && toFile(row);
  }

  /** As `find`, but throws `file_not_found`. */
  async get(key: FileKey): Promise<StoredFile> {
    const file = await this.find(key);
    if (!file) throw new OracleError('file_not_found');
    return file;
  }

  /** Newest first; `before` is the id of a file. */
  async list({ owner, limit, offset = 0, before }: FilePage): Promise<StoredFile[]> {
    const rows = await selectFiles(this.context.database.tables, owner)
      .$if(before !== undefined, (query) => query.where('id', '<', before ?? ''))
      .orderBy('id', 'desc')
      .limit(limit)
      .offset(offset)
      .execute();
    return rows.map(toFile);
  }

  async hasAny(owner: string): Promise<boolean> {
    const { rows } = await findAny(this.context.database.tables, { owner });
    return rows.length > 0;
  }

  /** How many files the owner has, and their bytes, including those that are being uploaded. */
  measure(owner: string): Promise<{ readonly total: number; readonly usedBytes: number }> {
    return this.context.database.read(async (tables) => {
      const { total } = await tables
        .selectFrom('files')
        .select((e) => e.fn.countAll<number>().as('total'))
        .where('owner', '=', owner)
        .where('status', '=', 'ready')
        .executeTakeFirstOrThrow();
      return { total: Number(total), usedBytes: await this.sumBytes(tables, owner) };
    });
  }

  /** Hides a file or an upload until `remove`; undefined if the owner has no such file. */
  async hide({ owner, fileId }: FileKey, from: FileRow['status']): Promise<FileBytes | undefined> {
    const row = await this.context.database.write((tables) =>
      tables
        .updateTable('files')
        // Without its hash, so that the same bytes can be uploaded again meanwhile.
        .set({ status: 'deleting', text_status: 'none', hash: null })
        .where('owner', '=', owner)
        .where('id', '=', fileId)
        .where('status', '=', from)
        .returningAll()
        .executeTakeFirst(),
    );
    return row && toBytes(row);
  }

  /** Forgets a hidden file, whose bytes and text are deleted. */
  async remove({ owner, id }: FileBytes): Promise<void> {
    await this.delete({ owner, fileId: id }, 'deleting');
  }

  private async delete({ owner, fileId }: FileKey, status: FileRow['status']): Promise<void> {
    await this.context.database.write((tables) =>
      tables
        .deleteFrom('files')
        .where('owner', '=', owner)
        .where('id', '=', fileId)
        .where('status', '=', status)
        .execute(),
    );
  }

  /** The hosts that receive, read or embed files, or did when they died. */
  async hosts(): Promise<readonly string[]> {
    const rows = await this.context.database.tables
      .selectFrom('files')
      .select('host_id')
      .distinct()
      .where((e) => e.or([e('status', '<>', 'ready'), e('lease_until', 'is not', null)]))
      .execute();
    return rows.flatMap(({ host_id }) => host_id ?? []);
  }

  /**
   * Gives back the files that hosts were reading or embedding when they died, as if they had not been claimed; false if
   * there are none.
   */
  async releaseClaims(deadHosts: readonly string[]): Promise<boolean> {
    if (deadHosts.length === 0) return false;
    const { numUpdatedRows } = await this.context.database.write((tables) =>
      tables
        .updateTable('files')
        .set((e) => ({
          lease_until: null,
          host_id: null,
          attempts: e
            .case()
            .when('text_status', '=', 'pending')
            .then(e('attempts', '-', 1))
            .else(e.ref('attempts'))
            .end(),
        }))
        .where('host_id', 'in', deadHosts)
        .where('status', '=', 'ready')
        .where('lease_until', 'is not', null)
        .executeTakeFirstOrThrow(),
    );
    return numUpdatedRows > 0n;
  }

  /** Hides uploads that died with their host, or all of an owner; returns some files whose deletion has not ended. */
  async findLeftovers(
    limit: number,
    { owner, deadHosts = [] }: Leftovers = {},
  ): Promise<FileBytes[]> {
    const before = this.context.clock() - STALE_UPLOAD_MS;
    const isOver = (e: ExpressionBuilder<Schema, 'files'>) =>
      owner === undefined
        ? e.or([
            e('updated_at', '<', before),
            ...(deadHosts.length > 0 ? [e('host_id', 'in', deadHosts)] : []),
          ])
        : e('owner', '=', owner);
    const rows = await this.context.database.write(async (tables) => {
      await tables
        .updateTable('files')
        .set({ status: 'deleting' })
        .where('status', '=', 'uploading')
        .where(isOver)
        .execute();
      const hidden = tables.selectFrom('files').selectAll().where('status', '=', 'deleting');
      return hidden.where(isOver).limit(limit).execute();
    });
    return rows.map(toBytes);
  }

  /** The bytes of all files of all users, including those that are being deleted, or uploaded to other hosts. */
  async sumAllBytes({ withoutUploadsAt }: { readonly withoutUploadsAt: string }): Promise<number> {
    const { tables } = this.context.database;
    const sum = tables
      .selectFrom('files')
      .select((e) => e.fn.sum<number | null>('size').as('total'))
      .where((e) =>
        e.or([
          e('status', '<>', 'uploading'),
          e('host_id', 'is', null),
          e('host_id', '<>', withoutUploadsAt),
        ]),
      );
    return Number((await sum.executeTakeFirstOrThrow()).total ?? 0);
  }

  private async sumBytes(tables: Kysely<Schema>, owner: string, except = ''): Promise<number> {
    const staleBefore = this.context.clock() - STALE_UPLOAD_MS;
    const { total } = await tables
      .selectFrom('files')
      .select(
        sql<
          number | null
        >`sum(case when size < ${sql.lit(MIN_CHARGE_BYTES)} then ${sql.lit(MIN_CHARGE_BYTES)} else size end)`.as(
          'total',
        ),
      )
      .where('owner', '=', owner)
      .where('id', '<>', except)
      .where((e) =>
        e.or([
          e('status', '=', 'ready'),
          e.and([e('status', '=', 'uploading'), e('updated_at', '>=', staleBefore)]),
        ]),
      )
      .executeTakeFirstOrThrow();
    return Number(total ?? 0);
  }
}

const toCharge = (size: number) => Math.max(size, MIN_CHARGE_BYTES);

/** Another host took it for dead, or its owner is being erased. */
export const createLostError = () =>
  new OracleError('request_timeout', {
    message:
      'The file was removed before it had arrived: it took too long, or your data was erased meanwhile; send it again if it should be stored',
  });

const selectFiles = (tables: Kysely<Schema>, owner: string, status: FileRow['status'] = 'ready') =>
  tables.selectFrom('files').selectAll().where('owner', '=', owner).where('status', '=', status);

const toBytes = ({ owner, id, size, storage, chunk_bytes }: FileRow): FileBytes => ({
  owner,
  id,
  size: Number(size),
  storage,
  chunkBytes: chunk_bytes,
});

export function toFile(row: FileRow): StoredFile {
  return {
    ...toBytes(row),
    name: row.name,
    mediaType: row.media_type,
    hash: row.hash ?? '',
    text: {
      status: row.text_status,
      ...(row.text_unit !== null && { unit: row.text_unit }),
      ...(row.text_count !== null && { count: row.text_count }),
      ...(row.text_complete !== null && { isComplete: row.text_complete === 1 }),
      ...(row.text_error !== null && { error: row.text_error }),
    },
    createdAt: Number(row.created_at),
  };
}

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
