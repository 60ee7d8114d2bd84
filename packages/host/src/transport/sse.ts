import type { Response } from 'express';
import type { Frame } from '../store/runs/frames.js';
import { pacedWrite, ReaderGone } from './paced-write.js';

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
  readonly onFault?: ((error: unknown) => void) | undefined;
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
      for (const chunk of chunksOf(frames)) await pacedWrite(response, chunk, options.stallMs);
    }
    response.end();
  } catch (error) {
    if (!(error instanceof ReaderGone)) options.onFault?.(error);
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

function* chunksOf(frames: readonly Frame[]): Generator<string> {
  let chunk = '';
  for (const { seq, event, data } of frames) {
    chunk += `event: ${event}\nid: ${seq}\ndata: ${data}\n\n`;
    if (chunk.length < CHUNK_CHARACTERS) continue;
    yield chunk;
    chunk = '';
  }
  if (chunk) yield chunk;
}
