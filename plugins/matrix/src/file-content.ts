import { Worker } from 'node:worker_threads';
import { analyse } from 'chardet';

const ascii = (text: string) => Buffer.from(text, 'latin1');

/** The magic bytes of types: alternatives of bytes at offsets. */
const MAGIC: Readonly<Record<string, readonly (readonly [number, Buffer])[][]>> = {
  'application/pdf': [[[0, ascii('%PDF-')]]],
  'image/png': [[[0, ascii('\x89PNG\r\n\x1a\n')]]],
  'image/jpeg': [[[0, ascii('\xff\xd8\xff')]]],
  'image/gif': [[[0, ascii('GIF87a')]], [[0, ascii('GIF89a')]]],
  'image/webp': [
    [
      [0, ascii('RIFF')],
      [8, ascii('WEBP')],
    ],
  ],
};

export interface TextContent {
  readonly kind: 'text';
  readonly text: string;
  /** Less than all of a long file: its beginning. */
  readonly decodedBytes: number;
}

/** What the bytes of a file are. */
export type FileContent =
  | TextContent
  | { readonly kind: 'pdf' }
  | { readonly kind: 'image'; readonly type: string };

/** Contain all characters that a model receives, of up to four bytes each: all of a file would be decoded for each charset that it could have. */
export const DECODED_BYTES = 4 * 60_000;

/** Finds out what a file is by its bytes. What it claims to be names the charset, and which other types are a mistake. */
export function detectContent(mimetype: string, bytes: Uint8Array): FileContent {
  const [claimed = '', ...parameters] = mimetype
    .toLowerCase()
    .split(';')
    .map((s) => s.trim());
  const found = Object.entries(MAGIC).find(([, ways]) =>
    ways.some((way) => way.every(([at, start]) => startsAt(bytes, at, start))),
  );
  if (found?.[0] === 'application/pdf') return { kind: 'pdf' };
  if (found) return { kind: 'image', type: found[0] };
  // A broken image or PDF is not a text, even if its bytes could be read as one.
  if (/^(image\/(?!svg)|audio\/|video\/|application\/pdf$)/.test(claimed))
    throw new Error(`it is not of type ${claimed}`);
  const start = bytes.subarray(0, DECODED_BYTES);
  const isWhole = start.length === bytes.length;
  const text = decodeText(start, { named: findCharset(parameters), isWhole });
  if (text === undefined) throw new Error(`files of type ${claimed} cannot be read`);
  return { kind: 'text', text, decodedBytes: start.length };
}

function startsAt(bytes: Uint8Array, at: number, start: Buffer): boolean {
  return Buffer.from(bytes.subarray(at, at + start.length)).equals(start);
}

const findCharset = (parameters: readonly string[]): string | undefined =>
  parameters
    .map((parameter) => /^charset="?([^"]+)"?$/.exec(parameter)?.[1])
    .find((charset) => charset !== undefined);

/** Enough to recognize a charset. */
const SAMPLE_BYTES = 64 * 1024;

interface DecodeOptions {
  readonly named: string | undefined;
  /** Otherwise the last character may be incomplete. */
  readonly isWhole: boolean;
}

/** The text of a file; undefined if it is binary. */
function decodeText(bytes: Uint8Array, { named, isWhole }: DecodeOptions): string | undefined {
  const decode = (charset: string) => decodeAs(charset, bytes, { stream: !isWhole });
  const sample = bytes.subarray(0, SAMPLE_BYTES);
  const marked = findByteOrderMark(sample) ?? guessUtf16(sample);
  const decoded = marked && decode(marked);
  if (decoded !== undefined && !BINARY_TEXT.test(decoded.slice(0, SAMPLE_BYTES))) return decoded;
  if (sample.some(isBinary)) return undefined;
  const text = (named && decode(named)) ?? decode('utf-8');
  if (text !== undefined) return text;
  const guesses = [...analyse(sample).map(({ name }) => name), 'windows-1252'];
  for (const charset of guesses) {
    const guess = decode(charset);
    if (guess !== undefined) return guess;
  }
  return undefined;
}

/** Undefined if the charset is unknown, or the bytes are not valid in it. */
function decodeAs(charset: string, bytes: Uint8Array, options: { readonly stream: boolean }) {
  try {
    return new TextDecoder(charset, { fatal: true }).decode(bytes, options);
  } catch {
    return undefined;
  }
}

function findByteOrderMark(bytes: Uint8Array): string | undefined {
  if (startsAt(bytes, 0, ascii('\xef\xbb\xbf'))) return 'utf-8';
  if (startsAt(bytes, 0, ascii('\xff\xfe'))) return 'utf-16le';
  return startsAt(bytes, 0, ascii('\xfe\xff')) ? 'utf-16be' : undefined;
}

/** In UTF-16, every second byte of most texts is zero, and hardly any of the others. */
function guessUtf16(bytes: Uint8Array): string | undefined {
  const zeros: [number, number] = [0, 0];
  for (const [at, byte] of bytes.entries()) if (byte === 0) zeros[at % 2 ? 1 : 0] += 1;
  const [even, odd] = zeros.map((count) => count / (bytes.length / 2));
  if (bytes.length % 2 || even === undefined || odd === undefined) return undefined;
  if (odd > 0.4 && even < 0.05) return 'utf-16le';
  return even > 0.4 && odd < 0.05 ? 'utf-16be' : undefined;
}

/** Control characters that texts do not contain; tab to carriage return, end of file and escape are allowed. */
const isBinary = (byte: number) =>
  byte < 0x20 && (byte < 0x07 || byte > 0x0d) && byte !== 0x1a && byte !== 0x1b;
// biome-ignore lint/suspicious/noControlCharactersInRegex: it looks for them.
const BINARY_TEXT = /[\0-\x06\x0e-\x19\x1c-\x1f]/;

const TIMEOUT_MS = 20_000;
const MEMORY_MB = 256;

/** Runs in a worker, which limits the time and memory of hostile files. */
const READER = `
const { parentPort, workerData } = require('node:worker_threads');
import(workerData.library)
  .then(({ extractText }) => extractText(workerData.bytes, { mergePages: true }))
  .then(({ text }) =>
    parentPort.postMessage({ text: text.slice(0, workerData.limit), length: text.length }))
  .catch((error) => parentPort.postMessage({ error: String(error && error.message) }));
`;

/** The beginning of a PDF's text, and how long all of it is. */
export interface PdfText {
  readonly text: string;
  readonly length: number;
}

type Answer = PdfText | { readonly error: string };

/** Reads at most `limit` characters of a PDF; throws when it cannot be read within limits. */
export async function readPdf(
  bytes: Uint8Array,
  limit: number,
  signal: AbortSignal,
): Promise<PdfText> {
  const worker = new Worker(READER, {
    eval: true,
    workerData: { library: import.meta.resolve('unpdf'), bytes: new Uint8Array(bytes), limit },
    resourceLimits: { maxOldGenerationSizeMb: MEMORY_MB },
    env: {},
    stdout: true,
    stderr: true,
  });
  const stop = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]);
  try {
    const answer = await waitForAnswer(worker, stop);
    if ('error' in answer) throw new Error(`the PDF cannot be read (${answer.error})`);
    if (!answer.text.trim()) throw new Error('the PDF holds no text, only images');
    return answer;
  } finally {
    await worker.terminate();
  }
}

function waitForAnswer(worker: Worker, stop: AbortSignal): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const rejectTimeout = () => reject(new Error('the PDF takes too long to read'));
    if (stop.aborted) return rejectTimeout();
    stop.addEventListener('abort', rejectTimeout, { once: true });
    worker.once('message', resolve);
    worker.once('error', () => reject(new Error('the PDF is too large to read')));
    worker.once('exit', () => reject(new Error('the PDF cannot be read')));
  });
}
