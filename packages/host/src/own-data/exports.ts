import { createHash } from 'node:crypto';
import { addAbortSignal, Readable } from 'node:stream';
import { finished } from 'node:stream/promises';
import type { LoadedPlugin } from '@sibyl/plugin-kit/host';
import { OracleError } from '@sibyl/protocol';
import { createRefusal, type Holder, Places, Rounds } from '@sibyl/server-kit';
import type { ZipFile } from 'yazl';
import type { OracleIdentity } from '../auth/oracle-identity.js';
import type { FileService } from '../files/file-service.js';
import type { OwnedTable, OwnerRows, StoredRow } from '../store/own-data/owner-rows.js';
import {
  MANIFEST,
  type Manifest,
  type ManifestFile,
  README,
  SIGNATURE,
  signManifest,
  toFilePath,
  toPartPath,
  toUploadPath,
} from './archive-format.js';

/** Exports of all users on this host, most of which wait for their clients. */
const MAX_OPEN = 64;
/** Those that read and compress at the same time. */
const MAX_RUNNING = 4;
const CODES = { owner: 'too_many_exports', total: 'too_many_exports' } as const;
const RETRY_SECONDS = 30;
/** Characters after which the rows of a table continue in another file. */
const PART_LENGTH = 64 * 1024 * 1024;
const BUFFER_BYTES = 64 * 1024;
/** Bytes per second that a client reads at least, after its first minute: a slower one would occupy a place for days. */
const MIN_RATE = 8 * 1024;
const GRACE_MS = 60_000;

interface ExportsDeps {
  readonly rows: OwnerRows;
  readonly oracle: OracleIdentity;
  readonly plugins: readonly LoadedPlugin[];
  readonly files: Pick<FileService, 'exportAll'>;
}

/** Ends an export whose client reads too slowly. Only the time of the client counts, not that of the store. */
async function* limitTime(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let waitedMs = 0;
  let bytes = 0;
  for await (const chunk of chunks) {
    const sentAt = performance.now();
    yield chunk;
    bytes += chunk.length;
    waitedMs += performance.now() - sentAt;
    if (waitedMs > GRACE_MS && bytes < (waitedMs / 1000) * MIN_RATE)
      throw new OracleError('request_timeout');
  }
}

/** Writes everything that is stored about a user as a zip archive, while it is being read. */
export class Exports {
  private readonly places = new Places({ max: MAX_OPEN, maxPerOwner: 1 });
  private readonly rounds = new Rounds({ places: MAX_RUNNING, sliceMs: 0 });

  constructor(private readonly deps: ExportsDeps) {}

  /**
   * Throws before the first byte if the user's last export is still running, or too many others are. It counts from the
   * first read on: a generator that is never read does not end either.
   */
  async *open(holder: Holder): AsyncGenerator<Buffer> {
    const { ok: release, error } = this.places.take(holder);
    if (!release) throw createRefusal(error, CODES, RETRY_SECONDS);
    try {
      const chunks = this.stream(await ArchiveWriter.create(), holder.owner);
      yield* limitTime(this.share(holder, chunks));
    } finally {
      release();
    }
  }

  /** While its client reads, an export holds back no other. */
  private async *share(holder: Holder, chunks: AsyncGenerator<Buffer>): AsyncGenerator<Buffer> {
    try {
      for (;;) {
        const { done, value } = await this.rounds.run(holder, () => chunks.next());
        if (done) return;
        yield value;
      }
    } finally {
      await chunks.return(undefined);
    }
  }

  private async *stream(archive: ArchiveWriter, owner: string): AsyncGenerator<Buffer> {
    const writing = this.fill(archive, owner).catch((error) => archive.fail(error));
    try {
      yield* archive.output;
    } finally {
      // The client may have left.
      archive.fail(new Error('The export was abandoned'));
      await writing;
    }
  }

  private async fill(archive: ArchiveWriter, owner: string): Promise<void> {
    const { rows, oracle } = this.deps;
    await archive.add(README, [describe(oracle.name)]);
    const tables = await rows.tables();
    for (const table of tables) {
      if (table.rules.isDerived) continue;
      await this.addRows(archive, table, owner);
      for (const { name, kind } of table.columns)
        if (kind === 'bytes') await this.addFiles(archive, table, { owner, column: name });
    }
    await this.addUploads(archive, owner);
    const manifest: Manifest = {
      format: 'sibyl-export',
      version: 1,
      owner,
      oracle: { did: oracle.did, name: oracle.name },
      createdAt: new Date().toISOString(),
      files: archive.files,
      omitted: tables.flatMap(({ name, rules }) =>
        Object.entries(rules.omitted).map(([column, reason]) => ({ table: name, column, reason })),
      ),
    };
    const bytes = Buffer.from(JSON.stringify(manifest, null, 2));
    await archive.add(MANIFEST, [bytes]);
    await archive.add(SIGNATURE, [signManifest(oracle.signer, bytes)]);
    archive.end();
  }

  /** Files of the user, and what plugins keep outside of the database. */
  private async addUploads(archive: ArchiveWriter, owner: string): Promise<void> {
    const { files, plugins } = this.deps;
    for await (const { file, bytes } of files.exportAll(owner))
      await archive.add(toUploadPath(file.id, file.name), bytes, {
        compress: false,
        size: file.size,
      });
    for (const { name, plugin, services } of plugins)
      for await (const { path, data } of plugin.exportUser?.(owner, services) ?? [])
        await archive.add(`plugins/${name}/${path}`, data);
  }

  private async addRows(archive: ArchiveWriter, table: OwnedTable, owner: string): Promise<void> {
    const pages = this.deps.rows.pages(table, owner);
    let page = await pages.next();
    const readPart = async function* () {
      for (let length = 0; !page.done && length < PART_LENGTH; page = await pages.next()) {
        const lines = page.value.map((row) => toLine(table, row)).join('');
        length += lines.length;
        yield lines;
      }
    };
    for (let part = 1; !page.done; part++)
      await archive.add(toPartPath(table.name, part), readPart());
  }

  private async addFiles(
    archive: ArchiveWriter,
    table: OwnedTable,
    { owner, column }: { readonly owner: string; readonly column: string },
  ): Promise<void> {
    for await (const { key, data } of this.deps.rows.files(table, owner, column)) {
      const path = toFilePath(table.name, column, pickKey(table, key));
      // Most files are compressed already.
      await archive.add(path, slice(data), { compress: false });
    }
  }
}

/** Without the owner, which an import replaces. */
const pickKey = (table: OwnedTable, row: StoredRow): StoredRow =>
  Object.fromEntries(
    table.key.flatMap((name) =>
      name === table.ownerColumn ? [] : [[name, row[name] ?? null] as const],
    ),
  );

function toLine(table: OwnedTable, row: StoredRow): string {
  const files = table.columns.flatMap(({ name, kind }) =>
    kind === 'bytes'
      ? [[name, { file: toFilePath(table.name, name, pickKey(table, row)) }] as const]
      : [],
  );
  return `${JSON.stringify({ ...row, ...Object.fromEntries(files) })}\n`;
}

function* slice(data: Uint8Array): Generator<Buffer> {
  for (let at = 0; at < data.length; at += BUFFER_BYTES)
    yield Buffer.from(data.subarray(at, at + BUFFER_BYTES));
}

const describe = (name: string) =>
  [
    `Everything that ${name} stores about you.`,
    '',
    'tables/  one folder per table, one JSON object per line; your conversations are in sessions and messages',
    'files/   the files that the tables name',
    'uploads/ the files that you uploaded',
    'plugins/ what plugins store elsewhere',
    `${MANIFEST}  the size and SHA-256 of each file; ${SIGNATURE} is the oracle's signature of it`,
    '',
    'Import it into any oracle with "sibyl import <file>".',
    '',
  ].join('\n');

type Chunks = Iterable<Uint8Array | string> | AsyncIterable<Uint8Array | string>;

/** Writes one entry after the other, each as fast as the output is read. */
class ArchiveWriter {
  readonly files: ManifestFile[] = [];
  private readonly closing = new AbortController();

  private constructor(private readonly zip: ZipFile) {
    zip.on('error', (error) => this.fail(error));
  }

  static async create(): Promise<ArchiveWriter> {
    // Loaded with the first export.
    const { ZipFile } = await import('yazl');
    return new ArchiveWriter(new ZipFile());
  }

  get output(): Readable {
    return this.zip.outputStream as Readable;
  }

  /** Resolves once the entry was read completely. One that ends before its size is not part of the manifest. */
  async add(path: string, chunks: Chunks, { compress = true, size = 0 } = {}): Promise<void> {
    const file = { path, bytes: 0, sha256: '' };
    const hash = createHash('sha256');
    const measure = async function* () {
      for await (const chunk of chunks) {
        const bytes = typeof chunk === 'string' ? Buffer.from(chunk) : chunk;
        file.bytes += bytes.length;
        hash.update(bytes);
        yield bytes;
      }
    };
    const source = Readable.from(measure(), { objectMode: false, highWaterMark: BUFFER_BYTES });
    this.zip.addReadStream(source, path, { compress, mode: 0o100600 });
    addAbortSignal(this.closing.signal, source);
    await finished(source);
    if (file.bytes >= size) this.files.push({ ...file, sha256: hash.digest('hex') });
  }

  end(): void {
    this.zip.end();
  }

  /** Ends the output with an error, unless it has ended. */
  fail(error: Error): void {
    this.closing.abort(error);
    if (!this.output.readableEnded) this.output.destroy(error);
  }
}
