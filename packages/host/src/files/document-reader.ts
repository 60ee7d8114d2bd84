// Reads the text of one document after another, in a separate process: a malicious file can only end this process.
// It imports nothing of the host, so that it runs from the sources as well as from the build.

/** What the host asks for. */
export interface ReadJob {
  readonly kind: 'pdf' | 'docx' | 'xlsx' | 'html' | 'text';
  /** Bytes of the file. */
  readonly size: number;
  readonly maxCharacters: number;
  /** Bytes of the text, encoded as UTF-8. */
  readonly maxTextBytes: number;
  /** Bytes of a file that has to be in memory as a whole, and of what a zip file contains. */
  readonly maxBytes: number;
}

/** A piece of text and where it is. */
export interface ReadPassage {
  readonly place: number;
  readonly position: string;
  readonly text: string;
}

/** What a document is read in: one passage, or more if it is long. */
interface Piece extends ReadPassage {
  /** The last page, sheet, paragraph or line in it. */
  readonly last: number;
}

export type Unit = 'page' | 'sheet' | 'paragraph' | 'line';

export type FromReader =
  | { readonly type: 'bytes'; readonly start: number; readonly end: number }
  | { readonly type: 'passages'; readonly passages: readonly ReadPassage[] }
  | {
      readonly type: 'done';
      readonly unit: Unit;
      readonly count: number;
      readonly isComplete: boolean;
    }
  | { readonly type: 'failed'; readonly error: string };

export type ToReader =
  | { readonly type: 'read'; readonly job: ReadJob }
  | { readonly type: 'bytes'; readonly start: number; readonly data: Uint8Array<ArrayBuffer> }
  | { readonly type: 'stored' };

/** What one search result should contain. */
const PASSAGE_CHARACTERS = 1200;
const BATCH_PASSAGES = 16;
const PIECE_BYTES = 256 * 1024;
const SHEET_NAME = 100; // Excel allows 31 characters; every passage repeats them.

/** An error whose text is for the user. */
class DocumentError extends Error {}

/** The connection to the host: requests are answered in their order. */
const host = {
  waiting: new Map<number | 'stored', (data: Uint8Array<ArrayBuffer>) => void>(),

  /** In pieces, which the host holds in memory: of a damaged PDF, everything is needed at once. */
  async readBytes(start: number, end: number): Promise<Uint8Array<ArrayBuffer>> {
    const bytes = new Uint8Array(end - start);
    for (let at = start; at < end; at += PIECE_BYTES) {
      const request = { type: 'bytes', start: at, end: Math.min(end, at + PIECE_BYTES) } as const;
      bytes.set(await this.ask(at, request), at - start);
    }
    return bytes;
  },

  async store(passages: readonly ReadPassage[]): Promise<void> {
    await this.ask('stored', { type: 'passages', passages });
  },

  ask(key: number | 'stored', message: FromReader): Promise<Uint8Array<ArrayBuffer>> {
    return new Promise((resolve) => {
      this.waiting.set(key, resolve);
      this.send(message);
    });
  },

  answer(key: number | 'stored', data = new Uint8Array()): void {
    this.waiting.get(key)?.(data);
    this.waiting.delete(key);
  },

  send(message: FromReader): void {
    process.send?.(message);
  },
};

process.on('message', (message: ToReader) => {
  if (message.type === 'read') void readDocument(message.job);
  else if (message.type === 'bytes') host.answer(message.start, message.data);
  else host.answer('stored');
});
// The host has ended.
process.on('disconnect', () => process.exit());

async function readDocument(job: ReadJob): Promise<void> {
  try {
    const { unit, pieces } = readers[job.kind](job);
    const written = await writePassages(pieces, job);
    host.send({ type: 'done', unit, ...written });
  } catch (error) {
    const text =
      error instanceof DocumentError ? error.message : `it cannot be read (${describe(error)})`;
    host.send({ type: 'failed', error: text });
  }
}

const describe = (error: unknown) =>
  (error instanceof Error ? error.message : String(error)).split('\n', 1)[0]?.slice(0, 200);

const NO_ROOM = 'your files leave no room for its text; delete it and others, then upload it again';

/** Splits pieces into passages and sends them, as fast as the host stores them. */
async function writePassages(pieces: AsyncIterable<Piece>, job: ReadJob) {
  const left = { characters: job.maxCharacters, bytes: job.maxTextBytes };
  let batch: ReadPassage[] = [];
  let count = 0;
  let isComplete = true;
  for await (const { last, ...piece } of pieces) {
    count = last;
    const fitting = shorten(piece.text, left);
    for (const text of splitText(fitting)) {
      batch.push({ ...piece, text });
      left.characters -= text.length;
      left.bytes -= Buffer.byteLength(text);
      if (batch.length < BATCH_PASSAGES) continue;
      await host.store(batch);
      batch = [];
    }
    isComplete = fitting === piece.text;
    if (!isComplete) break;
  }
  if (batch.length > 0) await host.store(batch);
  if (left.characters === job.maxCharacters)
    throw new DocumentError(isComplete ? 'it contains no text' : NO_ROOM);
  return { count, isComplete };
}

function shorten(
  text: string,
  max: { readonly characters: number; readonly bytes: number },
): string {
  const short = text.slice(0, max.characters);
  if (Buffer.byteLength(short) <= max.bytes) return short;
  // Without the half of a character at the end.
  return new TextDecoder().decode(Buffer.from(short).subarray(0, Math.max(0, max.bytes)), {
    stream: true,
  });
}

/** Splits a text at spaces; a copy, since a slice would keep all of the text in memory. */
function* splitText(text: string): Generator<string> {
  for (let at = 0; at < text.length; ) {
    const end = Math.min(at + PASSAGE_CHARACTERS, text.length);
    const space = end < text.length ? text.lastIndexOf(' ', end) : -1;
    const next = space > at + PASSAGE_CHARACTERS / 2 ? space : end;
    const part = text.slice(at, next).toWellFormed().trim();
    if (part) yield Buffer.from(part).toString();
    at = next;
  }
}

interface Reading {
  readonly unit: Unit;
  readonly pieces: AsyncIterable<Piece>;
}

const readers: Record<ReadJob['kind'], (job: ReadJob) => Reading> = {
  pdf: (job) => ({ unit: 'page', pieces: readPdf(job) }),
  docx: (job) => ({ unit: 'paragraph', pieces: readWord(job) }),
  xlsx: (job) => ({ unit: 'sheet', pieces: readExcel(job) }),
  html: (job) => ({ unit: 'line', pieces: readHtml(job) }),
  text: (job) => ({
    unit: 'line',
    pieces: joinLines(readLines(job), (from, to) => describeRange('line', from, to)),
  }),
};

/** Reads a PDF page by page; only the parts of the file that its text needs. */
async function* readPdf({ size }: ReadJob): AsyncGenerator<Piece> {
  const { getDocument, PDFDataRangeTransport, VerbosityLevel } = await import('unpdf/pdfjs');
  class Transport extends PDFDataRangeTransport {
    override requestDataRange(start: number, end: number): void {
      void host.readBytes(start, end).then((data) => this.onDataRange(start, data));
    }
  }
  const document = await getDocument({
    range: new Transport(size, new Uint8Array()),
    rangeChunkSize: PIECE_BYTES,
    disableAutoFetch: true,
    disableStream: true,
    disableFontFace: true,
    useSystemFonts: false,
    verbosity: VerbosityLevel.ERRORS,
  }).promise.catch((error: Error) => {
    if (error.name !== 'PasswordException') throw error;
    throw new DocumentError('it is protected by a password');
  });
  for (let number = 1; number <= document.numPages; number += 1) {
    const page = await document.getPage(number);
    const { items } = await page.getTextContent();
    const text = items
      .map((item) => ('str' in item ? item.str + (item.hasEOL ? '\n' : '') : ''))
      .join('');
    page.cleanup();
    yield { place: number, last: number, position: `page ${number}`, text };
  }
}

async function* readWord(job: ReadJob): AsyncGenerator<Piece> {
  const buffer = await readZip(job);
  const { default: mammoth } = await import('mammoth');
  const { value } = await mammoth.extractRawText({ buffer });
  yield* joinLines(
    value.split('\n').filter((line) => line.trim()),
    (from, to) => describeRange('paragraph', from, to),
  );
}

async function* readExcel(job: ReadJob): AsyncGenerator<Piece> {
  const buffer = await readZip(job);
  const { default: readWorkbook } = await import('read-excel-file/node');
  const sheets = await readWorkbook(buffer);
  for (const [index, { sheet, data }] of sheets.entries()) {
    const lines = data.map((row) => row.map(formatCell).join(' | '));
    const name = JSON.stringify(sheet.slice(0, SHEET_NAME));
    const rows = joinLines(lines, (from, to) => `sheet ${name}, ${describeRange('row', from, to)}`);
    for await (const piece of rows) yield { ...piece, place: index + 1, last: index + 1 };
  }
}

const formatCell = (cell: unknown) =>
  cell instanceof Date ? cell.toISOString() : String(cell ?? '').replaceAll(/\s+/g, ' ');

async function* readHtml(job: ReadJob): AsyncGenerator<Piece> {
  const bytes = await readAll(job);
  const { convert } = await import('html-to-text');
  const text = convert(createDecoder(bytes).decode(bytes), {
    wordwrap: false,
    limits: { maxInputLength: job.maxCharacters, maxDepth: 200, ellipsis: '' },
    selectors: [
      { selector: 'a', options: { ignoreHref: true } },
      { selector: 'img', format: 'skip' },
    ],
  });
  yield* joinLines(text.split('\n'), (from, to) => describeRange('line', from, to));
}

async function* readLines({ size }: ReadJob): AsyncGenerator<string> {
  let decoder: Decoder | undefined;
  let rest = '';
  for (let at = 0; at < size; at += PIECE_BYTES) {
    const bytes = await host.readBytes(at, Math.min(size, at + PIECE_BYTES));
    decoder ??= createDecoder(bytes);
    const lines = (rest + decoder.decode(bytes, { stream: at + PIECE_BYTES < size })).split(
      /\r\n|\n|\r(?!$)/,
    );
    rest = lines.pop() ?? '';
    // A file without line breaks must not be held as a whole.
    if (rest.length > PIECE_BYTES) {
      lines.push(rest);
      rest = '';
    }
    yield* lines;
  }
  // A line break at the end does not begin another line.
  if (rest) yield rest;
}

type Decoder = InstanceType<typeof TextDecoder>;

/** UTF-8 or UTF-16; what is neither is in an older encoding of Windows. */
function createDecoder(start: Uint8Array): Decoder {
  if (start[0] === 0xff && start[1] === 0xfe) return new TextDecoder('utf-16le');
  if (start[0] === 0xfe && start[1] === 0xff) return new TextDecoder('utf-16be');
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(start, { stream: true });
    return new TextDecoder();
  } catch {
    return new TextDecoder('windows-1252');
  }
}

/** Joins lines to pieces of about one passage; numbers count from 1. */
async function* joinLines(
  lines: Iterable<string> | AsyncIterable<string>,
  describePlace: (from: number, to: number) => string,
): AsyncGenerator<Piece> {
  let text = '';
  let from = 1;
  let number = 0;
  for await (const line of lines) {
    if (text.length + line.length > PASSAGE_CHARACTERS && text) {
      yield { place: from, last: number, position: describePlace(from, number), text };
      text = '';
    }
    number += 1;
    if (!text) from = number;
    text += text ? `\n${line}` : line;
  }
  if (text) yield { place: from, last: number, position: describePlace(from, number), text };
}

const describeRange = (unit: string, from: number, to: number) =>
  from === to ? `${unit} ${from}` : `${unit}s ${from}–${to}`;

/** A whole zip file, if what it says it contains is not too large. */
async function readZip(job: ReadJob): Promise<Buffer> {
  const bytes = await readAll(job);
  const { unzipSync } = await import('fflate');
  let total = 0;
  unzipSync(bytes, {
    filter: ({ originalSize }) => {
      total += originalSize;
      return false;
    },
  });
  if (total > job.maxBytes) throw new DocumentError('it unpacks to more than can be read');
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

async function readAll({ size, maxBytes }: ReadJob): Promise<Uint8Array> {
  if (size > maxBytes) throw new DocumentError('it is too large to be read');
  return host.readBytes(0, size);
}
