import { createHash } from 'node:crypto';
import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { setImmediate as nextTick } from 'node:timers/promises';
import { promisify } from 'node:util';
import { crc32 } from 'node:zlib';
import { OracleError } from '@sibyl/protocol';
import { type JsonScanLimits, scanJson } from '@sibyl/server-kit';
import type { Entry, Options, ZipFile } from 'yauzl';

const MAX_ENTRIES = 200_000;
/** A manifest lists every file. */
const MAX_SMALL_BYTES = 64 * 1024 * 1024;
/** A row of a table, or a conversation. */
const MAX_ITEM_BYTES = 64 * 1024 * 1024;

/** The archive cannot be imported. */
export const rejectArchive = (message: string, cause?: unknown): OracleError =>
  new OracleError('invalid_archive', { message, cause });

interface ArchiveOptions {
  /** The most bytes to decompress, of all files together and in all passes. */
  readonly maxBytes: number;
  readonly signal: AbortSignal;
}

/**
 * A zip archive of a stranger. Names of entries are compared with known ones, never used as paths; what is decompressed
 * is counted as it is read, so neither a compressed bomb nor overlapping entries can exceed the limit.
 */
export class ArchiveReader {
  private left: number;

  private constructor(
    private readonly zip: ZipFile,
    private readonly entries: ReadonlyMap<string, Entry>,
    private readonly options: ArchiveOptions,
  ) {
    this.left = options.maxBytes;
  }

  static async open(path: string, options: ArchiveOptions): Promise<ArchiveReader> {
    // Loaded with the first archive.
    const { default: yauzl } = await import('yauzl');
    const open = promisify<string, Options, ZipFile>(yauzl.open);
    const zip = await open(path, { lazyEntries: true, autoClose: false }).catch((error) => {
      throw rejectArchive('The file is not a complete zip archive', error);
    });
    try {
      return new ArchiveReader(zip, await listEntries(zip), options);
    } catch (error) {
      zip.close();
      throw error;
    }
  }

  /** The names of all files. */
  get paths(): readonly string[] {
    return [...this.entries.keys()];
  }

  close(): void {
    this.zip.close();
  }

  /** Reads a small file as a whole. */
  async readSmall(path: string): Promise<Buffer> {
    const entry = this.find(path);
    if (entry.uncompressedSize > MAX_SMALL_BYTES) throw rejectArchive(`${path} is too large`);
    return buffer(this.chunks(path));
  }

  /** The bytes of a file, as they are decompressed. */
  async *chunks(path: string): AsyncGenerator<Buffer> {
    const { signal } = this.options;
    const open = promisify<Entry, Readable>(this.zip.openReadStream.bind(this.zip));
    const entry = this.find(path);
    let checksum = 0;
    try {
      for await (const chunk of await open(entry)) {
        signal.throwIfAborted();
        this.left -= chunk.length;
        if (this.left < 0) throw rejectArchive(TOO_LARGE);
        checksum = crc32(chunk, checksum);
        yield chunk;
      }
      // The library does not compare it.
      if (checksum !== entry.crc32) throw new Error('The CRC-32 is wrong');
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof OracleError) throw error;
      throw rejectArchive(`${path} is damaged`, error);
    }
  }

  async hash(path: string): Promise<string> {
    const hash = createHash('sha256');
    for await (const chunk of this.chunks(path)) hash.update(chunk);
    return hash.digest('hex');
  }

  private find(path: string): Entry {
    const entry = this.entries.get(path);
    if (!entry) throw rejectArchive(`${path} is missing in the archive`);
    return entry;
  }
}

export const TOO_LARGE =
  'The archive contains more than this host imports at once (IMPORT_LIMIT); ask the operator to raise it';

async function listEntries(zip: ZipFile): Promise<ReadonlyMap<string, Entry>> {
  const entries = new Map<string, Entry>();
  if (zip.entryCount > MAX_ENTRIES)
    throw rejectArchive(`The archive has more than ${MAX_ENTRIES} files`);
  zip.on('entry', (entry: Entry) => {
    if (!entry.fileName.endsWith('/')) entries.set(entry.fileName, entry);
    zip.readEntry();
  });
  const ended = once(zip, 'end');
  zip.readEntry();
  await ended.catch((error) => {
    throw rejectArchive('The list of files in the archive is damaged', error);
  });
  return entries;
}

/** Parses JSON of a stranger; undefined if it is invalid or contains more than the limits. */
export function parseJson(text: string, limits: JsonScanLimits): unknown {
  if (scanJson(Buffer.from(text), limits).excess) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const NEWLINE = 0x0a;

const BUSY_MS = 10;

/** Lets the host do other work every few milliseconds: a chunk may contain thousands of items. */
function createPause(): () => Promise<void> {
  let since = performance.now();
  return async () => {
    if (performance.now() - since < BUSY_MS) return;
    await nextTick();
    since = performance.now();
  };
}

/** The lines of a file, without empty ones. */
export async function* readLines(chunks: AsyncIterable<Buffer>): AsyncGenerator<string> {
  const line = new Pieces('A line of the archive is too long');
  const pause = createPause();
  for await (const chunk of chunks) {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      const text = line.join(chunk.subarray(start, end));
      start = end + 1;
      if (text.trim()) yield text;
      await pause();
    }
    line.add(chunk.subarray(start));
  }
  const last = line.join(Buffer.alloc(0));
  if (last.trim()) yield last;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPENING: readonly number[] = [0x5b, 0x7b];
const CLOSING: readonly number[] = [0x5d, 0x7d];

/**
 * The objects in a JSON array, each as text. An array of conversations may be larger than memory, and streaming parsers
 * do not limit the size of an item.
 */
export async function* readArrayItems(chunks: AsyncIterable<Buffer>): AsyncGenerator<string> {
  const nesting = new JsonNesting();
  const item = new Pieces('A conversation in the archive is too long');
  const pause = createPause();
  for await (const chunk of chunks) {
    // Undefined between items.
    let start = nesting.depth > 1 ? 0 : undefined;
    for (const at of nesting.findItems(chunk)) {
      if (start === undefined) start = at;
      else {
        yield item.join(chunk.subarray(start, at + 1));
        start = undefined;
        await pause();
      }
    }
    if (start !== undefined) item.add(chunk.subarray(start));
  }
  if (nesting.depth !== 0) throw rejectArchive('The JSON of the conversations is incomplete');
}

/** A text that arrives in pieces. */
class Pieces {
  private pieces: Buffer[] = [];
  private length = 0;

  constructor(private readonly tooLong: string) {}

  add(piece: Buffer): void {
    this.pieces.push(piece);
    this.length += piece.length;
    if (this.length > MAX_ITEM_BYTES) throw rejectArchive(this.tooLong);
  }

  /** The text with its last piece; begins the next one. */
  join(last: Buffer): string {
    const text = Buffer.concat([...this.pieces, last]).toString('utf8');
    this.pieces = [];
    this.length = 0;
    return text;
  }
}

/** How deep a byte of JSON is nested. */
class JsonNesting {
  depth = 0;
  private isText = false;
  private isEscaped = false;

  /** Where items of the outermost array begin and end, in turn. */
  *findItems(chunk: Buffer): Generator<number> {
    for (let at = 0; at < chunk.length; at++) {
      const change = this.read(chunk[at] as number);
      const isItem = change > 0 ? this.depth === 2 : this.depth === 1;
      if (change !== 0 && isItem) yield at;
    }
  }

  /** 1 if the byte begins an object or array, -1 if it ends one. */
  private read(byte: number): -1 | 0 | 1 {
    if (this.isText) return this.readText(byte);
    if (byte === QUOTE) this.isText = true;
    const change = OPENING.includes(byte) ? 1 : CLOSING.includes(byte) ? -1 : 0;
    this.depth += change;
    return change;
  }

  private readText(byte: number): 0 {
    if (this.isEscaped) this.isEscaped = false;
    else if (byte === BACKSLASH) this.isEscaped = true;
    else if (byte === QUOTE) this.isText = false;
    return 0;
  }
}
