import { randomUUID } from 'node:crypto';
import { STATUS_CODES } from 'node:http';
import type { OracleError } from '@sibyl/protocol';
import type { Response } from 'express';
import type { Frame } from '../store/runs/frames.js';
import { toErrorBody } from './error-filter.js';

const HEARTBEAT_MS = 15_000;
/** How much is handed to a connection before it must have taken what it got. */
const CHUNK_CHARACTERS = 64 * 1024;

export interface SseOptions {
  readonly runId: string;
  /** How long a reader may take nothing before it is dropped; it can come back and read on. */
  readonly stallMs: number;
  /** Makes the source; its signal fires when the reader has gone. */
  readonly frames: (gone: AbortSignal) => AsyncIterable<readonly Frame[]>;
  /** Called with what broke the source off: it is too late for an error reply. */
  readonly onError?: ((error: unknown) => void) | undefined;
}

/** Sends frames as server-sent events at the pace of the reader, up to the last frame (contract B4). */
export async function sendSse(response: Response, options: SseOptions): Promise<void> {
  // A stream may last for hours, and nothing reads the bytes of its request any more.
  Object.assign(response.req, { rawBody: undefined });
  const gone = new AbortController();
  response.once('close', () => gone.abort());
  response.writeHead(200, {
    'Content-Type': 'text/event-stream',
    'Cache-Control': 'no-cache, no-transform',
    'X-Accel-Buffering': 'no',
    'X-Run-Id': options.runId,
  });
  // A HEAD request must not wait for the end of a run whose frames it cannot receive.
  if (response.req.method === 'HEAD') return void response.end();
  response.flushHeaders();
  const heartbeat = setInterval(() => beat(response), HEARTBEAT_MS);
  try {
    for await (const frames of options.frames(gone.signal)) {
      for (const chunk of toChunks(frames)) await writePaced(response, chunk, options.stallMs);
    }
    response.end();
  } catch (error) {
    if (!(error instanceof ReaderGoneError)) options.onError?.(error);
    // The status line is out, so all that is left is to hang up; the reader can join again.
    response.destroy();
  } finally {
    clearInterval(heartbeat);
  }
}

/** A reader that has not taken what it got needs no sign of life. */
function beat(response: Response): void {
  if (!response.writableNeedDrain) response.write(': heartbeat\n\n');
}

function* toChunks(frames: readonly Frame[]): Generator<string> {
  let chunk = '';
  for (const { seq, event, data } of frames) {
    chunk += `event: ${event}\nid: ${seq}\ndata: ${data}\n\n`;
    if (chunk.length < CHUNK_CHARACTERS) continue;
    yield chunk;
    chunk = '';
  }
  if (chunk) yield chunk;
}

/** A reader that left, or that takes nothing: no fault of the host. */
class ReaderGoneError extends Error {
  override readonly name = 'ReaderGoneError';
}

/** Hands a reader more once it has taken what it got; rejects if it has gone or takes nothing for `stallMs`. */
async function writePaced(response: Response, chunk: string, stallMs: number): Promise<void> {
  if (response.destroyed) throw new ReaderGoneError('The reader has gone');
  if (!response.write(chunk)) await waitForDrain(response, stallMs);
}

function waitForDrain(response: Response, stallMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (isDrained: boolean) => {
      clearTimeout(limit);
      response.off('drain', onDrain).off('close', onClose);
      if (isDrained) resolve();
      else reject(new ReaderGoneError('The reader takes nothing more'));
    };
    const onDrain = () => settle(true);
    const onClose = () => settle(false);
    const limit = setTimeout(onClose, stallMs);
    response.once('drain', onDrain).once('close', onClose);
  });
}

/** A whole HTTP answer, for connections that have no response to write to. */
export function buildRawResponse(error: OracleError): string {
  const requestId = randomUUID();
  const body = JSON.stringify(toErrorBody(error, requestId));
  return [
    `HTTP/1.1 ${error.status} ${STATUS_CODES[error.status]}`,
    'Content-Type: application/json; charset=utf-8',
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-Id: ${requestId}`,
    ...(error.retryAfterSeconds ? [`Retry-After: ${error.retryAfterSeconds}`] : []),
    'Connection: close',
    '',
    body,
  ].join('\r\n');
}

export interface ListAnswer {
  /** What the answer says beside the list. */
  readonly fields: object;
  /** The name of the list, which comes last. */
  readonly name: string;
  readonly pages: AsyncIterable<readonly unknown[]>;
  /** How long a reader may take nothing before it is dropped. */
  readonly stallMs: number;
  /** Called with what broke the list off: it is too late for an error reply. */
  readonly onError?: ((error: unknown) => void) | undefined;
}

/** Answers with a JSON object that holds a list of any length, of which a page is in memory at a time. */
export async function sendList(response: Response, answer: ListAnswer): Promise<void> {
  response.type('json');
  if (response.req.method === 'HEAD') return void response.end();
  try {
    for await (const text of stringifyList(answer)) {
      await writePaced(response, text, answer.stallMs);
    }
    response.end();
  } catch (error) {
    if (!response.headersSent) throw error;
    if (!(error instanceof ReaderGoneError)) answer.onError?.(error);
    // The status line is out, so all that is left is to hang up.
    response.destroy();
  }
}

async function* stringifyList({ fields, name, pages }: ListAnswer): AsyncGenerator<string> {
  const before = JSON.stringify({ ...fields, [name]: [] }).slice(0, -']}'.length);
  let lead = before;
  for await (const page of pages) {
    if (page.length === 0) continue;
    yield lead + page.map((item) => JSON.stringify(item)).join(',');
    lead = ',';
  }
  yield lead === before ? `${before}]}` : ']}';
}
