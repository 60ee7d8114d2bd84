import { createHash } from 'node:crypto';
import { OracleError } from '@sibyl/protocol';
import type { Holder } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import type { HostLiveness } from '../bus/host-bus.js';
import type { DiskReservation, DiskSpace } from '../store/disk-space.js';
import {
  type ChunkStorage,
  createLostError,
  type FileBytes,
  type FileKey,
  type FileStore,
  type StoredFile,
} from '../store/file-store.js';
import type { FileTextStore } from '../store/file-text-store.js';
import { cleanName, detectType, findDocumentKind } from './detect-type.js';
import {
  createQuotaError,
  createTooLargeError,
  type FileLimits,
  Reservation,
} from './reservation.js';
import { TotalSpace } from './total-space.js';
import { chargeBody, DailyCharge, type UploadLimits } from './upload-limits.js';

export interface FileServiceDeps {
  readonly files: FileStore;
  readonly texts: FileTextStore;
  /** The storage of new files first, then those that may hold older ones. */
  readonly storages: readonly [ChunkStorage, ...ChunkStorage[]];
  readonly limits: FileLimits;
  readonly uploads: UploadLimits;
  readonly disk: DiskSpace | undefined;
  readonly liveness: Pick<HostLiveness, 'hostId' | 'findDeadHosts'>;
  readonly logger: Logger;
  /** Called when a file has text to read or to embed. */
  readonly onUnread: () => void;
}

/** A file to store. */
export interface Upload {
  readonly holder: Holder;
  readonly name: string | undefined;
  /** When it was uploaded, in milliseconds, if that is not now. */
  readonly createdAt?: number | undefined;
  /** The length that the client announced, of the file or of a form that contains it. */
  readonly declaredBytes: number | undefined;
  readonly isForm: boolean;
  readonly body: AsyncIterable<Uint8Array>;
  /** Does a write once it is the turn of this upload. */
  readonly pace?: (<T>(write: () => Promise<T>) => Promise<T>) | undefined;
}

/** What a user sends. */
export type UserUpload = Omit<Upload, 'pace'>;

/** The space that an upload has reserved; called before as many bytes are stored in all. */
type Cover = (bytes: number) => Promise<unknown>;

/** Until the next sweep removes it anyway. */
const REMOVE_MS = 2_000;
const REMOVE_TRIES = 300;

/** Stores, reads and deletes the files of users. */
export class FileService {
  private readonly total: TotalSpace;

  constructor(private readonly deps: FileServiceDeps) {
    const { files, limits, liveness } = deps;
    const sum = () => files.sumAllBytes({ withoutUploadsAt: liveness.hostId });
    this.total = new TotalSpace(limits.maxBytesTotal, sum);
  }

  get limits(): FileLimits {
    return this.deps.limits;
  }

  /** Stores a file while it arrives; returns the file that the user has already, if its bytes are the same. */
  async upload(upload: UserUpload): Promise<StoredFile> {
    const { uploads } = this.deps;
    const { holder } = upload;
    this.assertSize(upload);
    const release = uploads.enter(holder);
    try {
      const pace = <T>(write: () => Promise<T>) => uploads.write(holder, write);
      return await this.store({ ...upload, pace });
    } finally {
      release();
    }
  }

  /** As `upload`, for callers that store few files at the same time. */
  async store(upload: Upload): Promise<StoredFile> {
    this.assertSize(upload);
    const { declaredBytes } = upload;
    const { storages, disk, uploads } = this.deps;
    const isOnDisk = storages[0].name === 'database';
    const charge = new DailyCharge(uploads, upload.holder);
    const total = await this.total.reserve(declaredBytes);
    let space: DiskReservation | undefined;
    let stored = 0;
    try {
      space = await disk?.reserve(isOnDisk ? declaredBytes : 0);
      const body = chargeBody(upload, (bytes) => charge.add(bytes));
      const { file, isNew } = await this.receive({ ...upload, body }, async (bytes) => {
        await total.cover(bytes);
        if (isOnDisk) await space?.cover(bytes);
      });
      if (isNew) stored = file.size;
      return file;
    } finally {
      space?.release();
      total.release(stored);
      charge.settle(stored);
    }
  }

  /** The file of a user with these bytes, by their SHA-256. */
  findSame(owner: string, hash: string): Promise<StoredFile | undefined> {
    return this.deps.files.findSame(owner, hash);
  }

  /** Reads some bytes of a file, one chunk at a time; `end` is exclusive. */
  async *read(file: FileBytes, { start = 0, end = file.size } = {}): AsyncGenerator<Uint8Array> {
    const storage = this.findStorage(file);
    const { owner, id: fileId, chunkBytes } = file;
    for (let at = start; at < end; ) {
      const n = Math.floor(at / chunkBytes);
      const chunk = await storage.get({ owner, fileId, n });
      if (!chunk) throw new Error(`The file ${fileId} has no chunk ${n}: it was deleted`);
      const piece = chunk.subarray(
        at - n * chunkBytes,
        Math.min(chunk.length, end - n * chunkBytes),
      );
      if (piece.length === 0) throw new Error(`The chunk ${n} of the file ${fileId} is too short`);
      at += piece.length;
      yield piece;
    }
  }

  /** All bytes of a file, which the caller must know to be small. */
  async readAll(file: FileBytes): Promise<Uint8Array> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of this.read(file)) chunks.push(chunk);
    return Buffer.concat(chunks);
  }

  /** Every file of a user with its bytes, for an export; fewer bytes than its size if it is deleted meanwhile. */
  async *exportAll(
    owner: string,
  ): AsyncGenerator<{ readonly file: StoredFile; readonly bytes: AsyncIterable<Uint8Array> }> {
    const { files } = this.deps;
    for (let before: string | undefined; ; ) {
      const page = await files.list({ owner, limit: 100, before });
      // Unless it was deleted while others were read.
      for (const file of page)
        if (await files.find({ owner, fileId: file.id }))
          yield { file, bytes: this.readWhileStored(file) };
      before = page.at(-1)?.id;
      if (before === undefined) return;
    }
  }

  /** Deletes a file, its bytes and its text; false if the owner has no such file. */
  async delete(key: FileKey): Promise<boolean> {
    const hidden = await this.deps.files.hide(key, 'ready');
    if (!hidden) return false;
    await this.repeat(key, () => this.purge(hidden));
    return true;
  }

  /** Deletes all files of a user, and what uploads have stored; throws if the storage does not answer. */
  async deleteAll(owner: string): Promise<void> {
    const { files } = this.deps;
    for (;;) {
      const page = await files.list({ owner, limit: 100 });
      for (const { id } of page) await files.hide({ owner, fileId: id }, 'ready');
      const hidden = await files.findLeftovers(100, { owner });
      for (const file of hidden) await this.purge(file);
      if (hidden.length === 0) return;
    }
  }

  /** Finishes deletions, removes uploads that ended with their host, and gives back what it was reading. */
  async sweep(): Promise<void> {
    const { files, liveness, onUnread } = this.deps;
    const hosts = (await files.hosts()).filter((id) => id !== liveness.hostId);
    const deadHosts = await liveness.findDeadHosts(hosts);
    if (await files.releaseClaims(deadHosts)) onUnread();
    for (;;) {
      const leftovers = await files.findLeftovers(100, { deadHosts });
      for (const file of leftovers) await this.purge(file);
      if (leftovers.length === 0) return;
    }
  }

  /** Ends early if the file is deleted meanwhile. */
  private async *readWhileStored(file: FileBytes): AsyncGenerator<Uint8Array> {
    try {
      yield* this.read(file);
    } catch (error) {
      if (await this.deps.files.find({ owner: file.owner, fileId: file.id })) throw error;
    }
  }

  private assertSize({
    declaredBytes = 0,
    isForm,
  }: Pick<Upload, 'declaredBytes' | 'isForm'>): void {
    const { maxBytes } = this.deps.limits;
    if (!isForm && declaredBytes > maxBytes) throw createTooLargeError(maxBytes);
  }

  /** `cover` is called before as many bytes are stored. */
  private async receive(
    upload: Upload,
    cover: Cover,
  ): Promise<{ readonly file: StoredFile; readonly isNew: boolean }> {
    const { createdAt, declaredBytes } = upload;
    const { owner } = upload.holder;
    const name = cleanName(upload.name);
    const [storage] = this.deps.storages;
    const { maxBytes, maxBytesPerUser } = this.deps.limits;
    const size = Math.min(declaredBytes ?? storage.chunkBytes, maxBytes);
    const { hostId } = this.deps.liveness;
    const place = { storage: storage.name, chunkBytes: storage.chunkBytes, hostId };
    const reserved = { owner, name, createdAt, size, maxBytes: maxBytesPerUser };
    const key = await this.deps.files.begin({ ...reserved, ...place });
    if (!key) throw createQuotaError(maxBytesPerUser);
    try {
      const quota = new Reservation(this.deps, key, size);
      const stored = await this.storeBytes({ ...upload, name }, key, async (bytes) => {
        await quota.cover(bytes);
        await cover(bytes);
      });
      const file = await this.deps.files.finish({ ...key, ...stored });
      const isNew = file.id === key.fileId;
      if (!isNew) await this.discard(key);
      else if (file.text.status === 'pending') this.deps.onUnread();
      return { file, isNew };
    } catch (error) {
      await this.discard(key);
      throw error;
    }
  }

  private async storeBytes(upload: Upload & { readonly name: string }, key: FileKey, cover: Cover) {
    const [storage] = this.deps.storages;
    const hash = createHash('sha256');
    let size = 0;
    let n = 0;
    let start: Uint8Array = new Uint8Array();
    for await (const chunk of toChunks(upload.body, storage.chunkBytes)) {
      size += chunk.length;
      await cover(size);
      hash.update(chunk);
      if (n === 0) start = chunk;
      const place = { ...key, n };
      await (upload.pace?.(() => storage.put(place, chunk)) ?? storage.put(place, chunk));
      if (!(await this.deps.files.find(key, 'uploading'))) {
        // What deleted the upload may have missed this chunk.
        const { name, chunkBytes } = storage;
        const { owner, fileId: id } = key;
        await storage.deleteAll({ owner, id, size, storage: name, chunkBytes });
        throw createLostError();
      }
      n += 1;
    }
    const mediaType = await detectType(start, upload.name);
    const textStatus = findDocumentKind(mediaType) ? ('pending' as const) : ('none' as const);
    return { size, hash: hash.digest('hex'), mediaType, textStatus };
  }

  /** Removes an upload that was refused or has broken off. */
  private discard(key: FileKey): Promise<void> {
    let hidden: FileBytes | undefined;
    return this.repeat(key, async () => {
      hidden ??= await this.deps.files.hide(key, 'uploading');
      if (hidden) await this.purge(hidden);
    });
  }

  /** Tries a removal again in the background while the store is away: until then, the bytes keep their space. */
  private async repeat(
    key: FileKey,
    remove: () => Promise<void>,
    tries = REMOVE_TRIES,
  ): Promise<void> {
    try {
      await remove();
    } catch (err) {
      if (tries === REMOVE_TRIES)
        this.deps.logger.warn({ err, ...key }, 'a file is not removed yet; trying again');
      if (tries > 0) setTimeout(() => this.repeat(key, remove, tries - 1), REMOVE_MS).unref();
    }
  }

  private async purge(file: FileBytes): Promise<void> {
    await this.deps.texts.deleteAll({ owner: file.owner, fileId: file.id });
    await this.findStorage(file).deleteAll(file);
    await this.deps.files.remove(file);
  }

  private findStorage({ storage }: FileBytes): ChunkStorage {
    const found = this.deps.storages.find(({ name }) => name === storage);
    if (found) return found;
    throw new OracleError('store_unavailable', {
      message: 'This file is in a storage that the host is not configured for (FILES_URL)',
    });
  }
}

/** Splits a stream into pieces of one size; the last may be shorter. */
async function* toChunks(
  body: AsyncIterable<Uint8Array>,
  chunkBytes: number,
): AsyncGenerator<Uint8Array> {
  let buffer = Buffer.allocUnsafe(chunkBytes);
  let filled = 0;
  for await (const piece of body) {
    for (let at = 0; at < piece.length; ) {
      const taken = Math.min(piece.length - at, chunkBytes - filled);
      buffer.set(piece.subarray(at, at + taken), filled);
      at += taken;
      filled += taken;
      if (filled < chunkBytes) continue;
      yield buffer;
      buffer = Buffer.allocUnsafe(chunkBytes);
      filled = 0;
    }
  }
  if (filled > 0) yield buffer.subarray(0, filled);
}
