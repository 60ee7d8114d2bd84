import { createReadStream, createWriteStream } from 'node:fs';
import { mkdir, open, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { type ImportJob, measureJson, OracleError } from '@sibyl/protocol';
import {
  abortableIterable,
  createRefusal,
  type Holder,
  Places,
  Rounds,
  type Slice,
} from '@sibyl/server-kit';
import type { Logger } from 'pino';
import type { CallerAllowList } from '../auth/caller-allow-list.js';
import type { HostLiveness } from '../bus/host-bus.js';
import type { SessionChanges } from '../bus/session-changes.js';
import type { FileService } from '../files/file-service.js';
import { chargeBody, type UploadLimits } from '../files/upload-limits.js';
import type { DiskSpace } from '../store/disk-space.js';
import type { ImportProgress, ImportStore } from '../store/own-data/import-store.js';
import type { StoredRow } from '../store/own-data/owner-rows.js';
import { isStoreError } from '../store/store-errors.js';
import {
  FileRow,
  listParts,
  MANIFEST,
  type Manifest,
  parseUploadPath,
  SIGNATURE,
  verifyManifest,
} from './archive-format.js';
import {
  ArchiveReader,
  parseJson,
  readArrayItems,
  readLines,
  rejectArchive,
  TOO_LARGE,
} from './archive-reader.js';
import { convertConversation } from './chatgpt-import.js';
import type { ImportWriter } from './import-writer.js';

/** Archives of all users that arrive, wait or are read on this host. */
const MAX_ARCHIVES = 64;
/** Those that are read at the same time. */
const MAX_RUNNING = 2;
/** How long one is read while others wait. */
const SLICE_MS = 1000;
const CODES = { owner: 'import_running', total: 'imports_busy' } as const;
const RETRY_SECONDS = 60;
const PROGRESS_MS = 1000;
/** A job that was not updated for so long has lost its host. */
const LOST_MS = 120_000;
/** The passes over an archive: checking its hashes, comparing its sessions with the stored ones, storing its content. */
const PASSES = 3;
const MAX_ROW_VALUES = 10_000;
/** Rows are flat, but for those that name files. */
const ROW_LIMITS = { depth: 4 };
/** Of thousands of messages; reading them takes well below a second, in which the host does nothing else. */
const CONVERSATION_LIMITS = { values: 250_000, members: 100_000 };
/** The name of the conversations in an export of ChatGPT. */
const CONVERSATIONS = /^(?:[^/]+\/)?conversations(?:-\d+)?\.json$/;

interface ImportsDeps {
  readonly changes: SessionChanges;
  readonly store: ImportStore;
  /** The writer stores nothing once the job is deleted. */
  readonly createWriter: (job: WriterJob) => ImportWriter;
  readonly files: Pick<FileService, 'store' | 'findSame'>;
  readonly uploads: Pick<UploadLimits, 'chargeArchive'>;
  readonly allowList: Pick<CallerAllowList, 'watch'>;
  /** The disk of the archives. */
  readonly disk: DiskSpace;
  readonly liveness: Pick<HostLiveness, 'hostId' | 'findDeadHosts'>;
  /** Has a folder for archives until they are imported. */
  readonly dataDir: string;
  /** The most bytes of an archive, compressed or not. */
  readonly maxBytes: number;
  readonly logger: Logger;
}

/** Whose content a writer stores. */
export interface WriterJob {
  readonly owner: string;
  readonly id: string;
  readonly holder: Holder;
}

interface ActiveImport {
  readonly cancel: AbortController;
  /** Settles once nothing is left to do for it. */
  readonly ended: Promise<void>;
}

interface SentArchive {
  readonly body: AsyncIterable<Uint8Array>;
  /** The length that the client announced. */
  readonly declaredBytes?: number | undefined;
}

interface ReceivedArchive {
  readonly path: string;
  readonly progress: { -readonly [Field in keyof ImportProgress]: ImportProgress[Field] };
}

interface StartedImport extends ReceivedArchive {
  readonly owner: string;
  readonly holder: Holder;
  /** Gives back its place. */
  readonly release: () => void;
  readonly writer: ImportWriter;
  readonly signal: AbortSignal;
  readonly id: string;
}

interface RunningImport extends StartedImport {
  readonly slice: Slice;
}

/** Imports archives: receives them as files, then stores their content in the background. */
export class Imports {
  private readonly places = new Places({ max: MAX_ARCHIVES, maxPerOwner: 1 });
  private readonly rounds = new Rounds({ places: MAX_RUNNING, sliceMs: SLICE_MS });
  /** At most one more for each user than have a place. */
  private readonly active = new Map<ActiveImport, string>();
  private readonly closing = new AbortController();
  private readonly folder: string;

  constructor(private readonly deps: ImportsDeps) {
    this.folder = join(deps.dataDir, 'imports');
  }

  /** Receives an archive and starts to import it. */
  async start(holder: Holder, sent: SentArchive): Promise<ImportJob> {
    const { owner } = holder;
    if (this.closing.signal.aborted)
      throw new OracleError('imports_busy', { retryAfterSeconds: RETRY_SECONDS });
    const { ok: release, error: refusal } = this.places.take(holder);
    if (!release) throw createRefusal(refusal, CODES, RETRY_SECONDS);
    const ended = Promise.withResolvers<void>();
    const active = { cancel: new AbortController(), ended: ended.promise };
    const signal = AbortSignal.any([this.closing.signal, active.cancel.signal]);
    this.active.set(active, owner);
    const stopWatching = this.deps.allowList.watch(owner, (exclusion) =>
      active.cancel.abort(new OracleError(exclusion)),
    );
    const end = () => {
      stopWatching();
      this.active.delete(active);
      ended.resolve();
    };
    try {
      const body = chargeBody(sent, (bytes) => this.deps.uploads.chargeArchive(holder, bytes));
      const received = await this.receive({ ...sent, body }, signal);
      const job = await this.createJob(owner, received);
      const writer = this.deps.createWriter({ owner, holder, id: job.id });
      const running = { ...received, owner, holder, release, id: job.id, writer, signal };
      void this.run(running, active.cancel).finally(end);
      return job;
    } catch (error) {
      release();
      end();
      throw error;
    }
  }

  async find(owner: string, id: string): Promise<ImportJob> {
    const job = await this.deps.store.findJob(owner, id);
    if (!job) throw new OracleError('import_not_found');
    const silentMs = this.deps.store.now() - Date.parse(job.updatedAt);
    const isLost = job.status === 'running' && silentMs > LOST_MS;
    return isLost ? { ...job, status: 'failed', error: STOPPED } : job;
  }

  /** Cancels running imports: sent again, they continue where they were. */
  async close(): Promise<void> {
    const stopped = { message: STOPPED, retryAfterSeconds: RETRY_SECONDS };
    this.closing.abort(new OracleError('imports_busy', stopped));
    await Promise.all([...this.active.keys()].map(({ ended }) => ended));
  }

  /** Ends the imports of a user on this host; resolves once they write nothing more. */
  async cancel(owner: string): Promise<void> {
    const own = [...this.active].flatMap(([active, user]) => (user === owner ? active : []));
    for (const { cancel } of own) cancel.abort(createErasedError());
    await Promise.all(own.map(({ ended }) => ended));
  }

  /** Removes the archives of hosts that were killed; running hosts may use the same folder. */
  async sweep(): Promise<void> {
    const names = await readdir(this.folder).catch(() => []);
    const hosts = new Set(names.map(readHostId));
    const dead = await this.deps.liveness.findDeadHosts([...hosts]);
    for (const name of names)
      if (dead.includes(readHostId(name))) await rm(join(this.folder, name), { force: true });
  }

  private async createJob(owner: string, { path, progress }: ReceivedArchive): Promise<ImportJob> {
    try {
      return await this.deps.store.createJob(owner, progress);
    } catch (error) {
      await rm(path, { force: true });
      throw error;
    }
  }

  private async receive(
    { body, declaredBytes }: SentArchive,
    signal: AbortSignal,
  ): Promise<ReceivedArchive> {
    const { disk, maxBytes, liveness } = this.deps;
    if ((declaredBytes ?? 0) > maxBytes) throw createTooLargeError();
    const space = await disk.reserve(declaredBytes);
    const path = join(this.folder, `${liveness.hostId}.${crypto.randomUUID()}`);
    let bytes = 0;
    const limit = async function* (chunks: AsyncIterable<Uint8Array>) {
      for await (const chunk of chunks) {
        bytes += chunk.length;
        if (bytes > maxBytes) throw createTooLargeError();
        await space.cover(bytes);
        yield chunk;
      }
    };
    try {
      await mkdir(this.folder, { recursive: true, mode: 0o700 });
      const file = createWriteStream(path, { mode: 0o600, flags: 'wx' });
      await pipeline(limit(abortableIterable(body, signal)), file, { signal });
      if (bytes === 0) throw rejectArchive('The body is empty: send the archive as it is');
    } catch (error) {
      await rm(path, { force: true });
      signal.throwIfAborted();
      throw error;
    } finally {
      space.release();
    }
    const progress: RunningImport['progress'] = {
      status: 'running',
      format: null,
      bytes: 0,
      totalBytes: 0,
      stored: {},
      present: 0,
      refused: 0,
    };
    return { path, progress };
  }

  private async run(running: StartedImport, cancel: AbortController): Promise<void> {
    const { store, logger } = this.deps;
    const { owner, id, path, progress } = running;
    const report = async () => {
      // At another host, in case its notification did not arrive.
      if (!(await store.updateJob(owner, id, this.describe(running))))
        cancel.abort(createErasedError());
    };
    let reporting: Promise<void> | undefined;
    const timer = setInterval(() => {
      reporting ??= report()
        .catch(() => undefined)
        .finally(() => {
          reporting = undefined;
        });
    }, PROGRESS_MS);
    try {
      const read = (slice: Slice) => this.read({ ...running, slice });
      await this.rounds.run(running.holder, read, running.signal);
      progress.status = 'finished';
    } catch (error) {
      progress.status = 'failed';
      progress.error = this.explain(error, running);
    } finally {
      clearInterval(timer);
      // Otherwise it may be stored after the last one, through another connection.
      await reporting;
      this.deps.changes.publish({ owner }, 'reload');
      await rm(path, { force: true });
      // Before the user can see that it has ended, and send the next one.
      running.release();
      await report().catch((err) => logger.warn({ err, did: owner }, 'import not reported'));
    }
  }

  private describe({ progress, writer }: StartedImport): ImportProgress {
    return { ...progress, ...writer.counts };
  }

  private explain(error: unknown, { owner, id, signal }: StartedImport): string {
    if (signal.aborted) return signal.reason.message;
    if (error instanceof OracleError && error.code === 'upload_limit_reached') return LIMITED;
    if (error instanceof OracleError) return error.message;
    this.deps.logger.error({ err: error, did: owner, importId: id }, 'import failed');
    if (isStoreError(error)) return 'The store is not available. Send the archive again.';
    return 'The import failed within the host. Send the archive again.';
  }

  private async read(running: RunningImport): Promise<void> {
    if (!(await isZip(running.path))) return this.readConversations(running);
    const { maxBytes } = this.deps;
    const options = { maxBytes: maxBytes * PASSES, signal: running.signal };
    const archive = await ArchiveReader.open(running.path, options);
    try {
      if (archive.paths.includes(MANIFEST)) await this.readExport(archive, running);
      else await this.readChatGpt(archive, running);
    } finally {
      archive.close();
    }
  }

  private async readExport(archive: ArchiveReader, running: RunningImport): Promise<void> {
    const { progress, writer } = running;
    const [bytes, signature] = [
      await archive.readSmall(MANIFEST),
      await archive.readSmall(SIGNATURE),
    ];
    const { ok, error } = verifyManifest(bytes, signature);
    if (error !== undefined) throw rejectArchive(error);
    const { manifest, key } = ok;
    progress.format = 'sibyl';
    progress.signedBy = key;
    const tables = ['rooms', 'files', ...writer.tables, ...writer.skippedTables];
    const parts = listParts(manifest, tables);
    // An export has the newest first: so their order stays the same.
    const uploads = manifest.files.filter(({ path }) => parseUploadPath(path)).reverse();
    const files = [...[...parts.values()].flat(), ...uploads];
    progress.totalBytes = files.reduce((sum, file) => sum + file.bytes, 0);
    // Nothing is stored of an archive that is damaged.
    for (const { path, sha256 } of files) {
      await running.slice.giveWay();
      if ((await archive.hash(path)) !== sha256) throw rejectArchive(`${path} was changed`);
    }
    const read = (table: string) => this.readRows(archive, parts.get(table) ?? [], running);
    const known = await readFiles(uploads, read('files'));
    await this.storeFiles(archive, uploads, { ...running, known });
    // Counted when they are stored.
    const uncounted = { progress: { ...progress }, writer: this.deps.createWriter(running) };
    const scan = (table: string) =>
      this.readRows(archive, parts.get(table) ?? [], { ...running, ...uncounted });
    await writer.compare({
      sessions: scan('sessions'),
      messages: scan('messages'),
      branches: scan('branches'),
    });
    const ownRoom = await findOwnRoom(manifest, read('rooms'));
    for (const table of writer.tables) await writer.add(table, read(table), ownRoom);
    for (const table of writer.skippedTables) await writer.skip(table, read(table));
    await writer.complete();
  }

  /** Before the messages, which name their files. */
  private async storeFiles(
    archive: ArchiveReader,
    files: Manifest['files'],
    running: RunningImport & { readonly known: ReadonlyMap<string, FileRow> },
  ): Promise<void> {
    const { owner, holder, progress, writer, signal } = running;
    for (const { path, bytes, sha256 } of files) {
      signal.throwIfAborted();
      const { id, name: inPath } = parseUploadPath(path) ?? { id: '', name: path };
      const { name = inPath, created_at: createdAt } = running.known.get(id) ?? {};
      const known = await this.deps.files.findSame(owner, sha256);
      if (known) {
        progress.bytes += bytes;
        writer.mapFile(id, known.id);
        writer.counts.stored.files ??= 0;
        writer.counts.present += 1;
        continue;
      }
      await writer.assertWanted();
      const body = countBytes(archive.chunks(path), running);
      const upload = { holder, name, createdAt, declaredBytes: bytes, isForm: false, body };
      try {
        writer.mapFile(id, (await this.deps.files.store(upload)).id);
        writer.counts.stored.files = (writer.counts.stored.files ?? 0) + 1;
      } catch (error) {
        signal.throwIfAborted();
        // Too large, or the user has too little space left; the rest can still be imported.
        if (!(error instanceof OracleError) || error.status !== 413) throw error;
        writer.counts.refused += 1;
      }
    }
  }

  private async *readRows(
    archive: ArchiveReader,
    files: Manifest['files'],
    running: RunningImport,
  ): AsyncGenerator<StoredRow> {
    const { writer } = running;
    for (const { path } of files)
      for await (const line of readLines(countBytes(archive.chunks(path), running))) {
        const row = parseRow(line);
        if (row) yield row;
        else writer.counts.refused += 1;
      }
  }

  private async readChatGpt(archive: ArchiveReader, running: RunningImport): Promise<void> {
    const paths = archive.paths.filter((path) => CONVERSATIONS.test(path));
    if (paths.length === 0)
      throw rejectArchive(
        `The archive is neither an export of an oracle (${MANIFEST} is missing) nor one of ChatGPT (conversations.json is missing)`,
      );
    for (const path of paths) await this.storeConversations(archive.chunks(path), running);
  }

  /** The conversations of ChatGPT without the archive around them. */
  private async readConversations(running: RunningImport): Promise<void> {
    const file = createReadStream(running.path, { signal: running.signal });
    await this.storeConversations(file, running);
  }

  private async storeConversations(
    chunks: AsyncIterable<Buffer>,
    running: RunningImport,
  ): Promise<void> {
    const { progress, writer, signal } = running;
    let count = 0;
    for await (const text of readArrayItems(countBytes(chunks, running))) {
      signal.throwIfAborted();
      const conversation = convertConversation(parseJson(text, CONVERSATION_LIMITS));
      if (conversation) await writer.addConversation(conversation, signal);
      else writer.counts.refused += 1;
      count += 1;
      if (conversation) progress.format = 'chatgpt';
    }
    if (count === 0 || progress.format === null)
      throw rejectArchive('The file contains no conversations of ChatGPT');
  }
}

const STOPPED =
  'The host stopped before the import had ended. Send the archive again: what is stored stays, and the rest is added.';

const LIMITED =
  'You, or your network address, have added as much as this host stores in a day (upload_limit_reached). What is stored stays: send the archive again tomorrow, and the rest is added.';

/** The host that a file in the folder of archives belongs to. */
const readHostId = (name: string): string => name.replace(/\..*/, '');

const createTooLargeError = () => new OracleError('body_too_large', { message: TOO_LARGE });

const createErasedError = () => rejectArchive('The user was erased');

async function isZip(path: string): Promise<boolean> {
  const file = await open(path);
  try {
    const { buffer } = await file.read(Buffer.alloc(2), 0, 2, 0);
    return buffer.toString('latin1') === 'PK';
  } finally {
    await file.close();
  }
}

async function findOwnRoom(
  { oracle }: Manifest,
  rooms: AsyncIterable<StoredRow>,
): Promise<string | undefined> {
  for await (const { id, oracle_did } of rooms)
    if (oracle_did === oracle.did && typeof id === 'string') return id;
  return undefined;
}

/** Uploaded files by their ids: paths in the archive have neither colons nor times. */
async function readFiles(
  uploads: Manifest['files'],
  rows: AsyncIterable<StoredRow>,
): Promise<ReadonlyMap<string, FileRow>> {
  const ids = new Set(uploads.map(({ path }) => parseUploadPath(path)?.id));
  const files = new Map<string, FileRow>();
  for await (const row of rows) {
    const { data } = FileRow.safeParse(row);
    if (data && ids.has(data.id)) files.set(data.id, data);
  }
  return files;
}

async function* countBytes(
  chunks: AsyncIterable<Buffer>,
  { progress, slice }: Pick<RunningImport, 'progress' | 'slice'>,
): AsyncGenerator<Buffer> {
  for await (const chunk of chunks) {
    await slice.giveWay();
    progress.bytes += chunk.length;
    yield chunk;
  }
}

function parseRow(line: string): StoredRow | undefined {
  const value = parseJson(line, { values: MAX_ROW_VALUES });
  const isRow = typeof value === 'object' && value !== null && !Array.isArray(value);
  return isRow && !measureJson(value, ROW_LIMITS).excess ? (value as StoredRow) : undefined;
}
