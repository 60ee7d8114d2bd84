import { Worker } from 'node:worker_threads';

const TIMEOUT_MS = 20_000;
const MEMORY_MB = 256;

/** Runs apart from the host: what a hostile file takes in time or memory ends with it. */
const READER = `
const { parentPort, workerData } = require('node:worker_threads');
import(workerData.library)
  .then(({ extractText }) => extractText(workerData.bytes, { mergePages: true }))
  .then(({ text }) =>
    parentPort.postMessage({ text: text.slice(0, workerData.limit), length: text.length }))
  .catch((error) => parentPort.postMessage({ fault: String(error && error.message) }));
`;

/** The beginning of a PDF's text, and how long all of it is. */
export interface PdfText {
  readonly text: string;
  readonly length: number;
}

type Answer = PdfText | { readonly fault: string };

/** Reads at most `limit` characters of a PDF; throws when it cannot be read within limits. */
export async function pdfText(
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
    const answer = await answerOf(worker, stop);
    if ('fault' in answer) throw new Error(`the PDF cannot be read (${answer.fault})`);
    if (!answer.text.trim()) throw new Error('the PDF holds no text, only images');
    return answer;
  } finally {
    await worker.terminate();
  }
}

function answerOf(worker: Worker, stop: AbortSignal): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const giveUp = () => reject(new Error('the PDF takes too long to read'));
    if (stop.aborted) return giveUp();
    stop.addEventListener('abort', giveUp, { once: true });
    worker.once('message', resolve);
    worker.once('error', () => reject(new Error('the PDF is too large to read')));
    worker.once('exit', () => reject(new Error('the PDF cannot be read')));
  });
}
