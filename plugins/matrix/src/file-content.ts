import { Worker } from 'node:worker_threads';

const TEXT_TYPES = new Set([
  'application/json',
  'application/ld+json',
  'application/xml',
  'application/yaml',
  'application/x-yaml',
  'application/toml',
  'application/csv',
  'application/javascript',
  'application/x-ndjson',
]);

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

export type FileKind = 'text' | 'pdf' | 'image';

/** How to read a file of the claimed type; throws if its bytes are of another type, or the type is not supported. */
export function detectKind(mimetype: string, bytes: Uint8Array): FileKind {
  const type = mimetype.toLowerCase().split(';', 1)[0]?.trim() ?? '';
  const magic = MAGIC[type];
  if (magic) {
    if (!magic.some((way) => way.every(([at, start]) => startsAt(bytes, at, start)))) {
      throw new Error(`it is not of type ${type}`);
    }
    return type === 'application/pdf' ? 'pdf' : 'image';
  }
  if (!type.startsWith('text/') && !TEXT_TYPES.has(type)) {
    throw new Error(`files of type ${type} cannot be read`);
  }
  if (bytes.subarray(0, 8192).includes(0)) throw new Error('it is not text');
  return 'text';
}

function startsAt(bytes: Uint8Array, at: number, start: Buffer): boolean {
  return Buffer.from(bytes.subarray(at, at + start.length)).equals(start);
}

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
