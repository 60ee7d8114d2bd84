import type { IncomingMessage } from 'node:http';
import type { Deadline } from './deadline.js';
import { SafeFetchError, toSafeFetchError } from './safe-fetch-error.js';

const BUFFERED_BYTES = 64 * 1024;

export interface BodyLimits {
  readonly host: string;
  readonly maxBytes: number;
  readonly deadline: Deadline;
}

/** Streams a body as fast as it is read; past the size or time limit the stream errors and the socket closes. */
export function limitedBody(message: IncomingMessage, limits: BodyLimits): ReadableStream {
  let received = 0;
  const { signal } = limits.deadline;
  const settled = new AbortController();
  const finish = () => {
    settled.abort();
    limits.deadline.clear();
    message.destroy();
  };
  const start = (controller: ReadableStreamDefaultController<Uint8Array>) => {
    const fail = (error: unknown) => {
      if (settled.signal.aborted) return;
      controller.error(signal.aborted ? signal.reason : toSafeFetchError(error, limits.host));
      finish();
    };
    message.on('data', (chunk: Buffer) => {
      if (settled.signal.aborted) return;
      received += chunk.length;
      if (!(received <= limits.maxBytes)) return fail(tooLarge(limits));
      controller.enqueue(chunk);
      if ((controller.desiredSize ?? 0) <= 0) message.pause();
    });
    message.on('end', () => {
      if (settled.signal.aborted) return;
      controller.close();
      finish();
    });
    message.on('error', fail);
    message.on('close', () => fail(new Error('closed early')));
    signal.addEventListener('abort', fail, { once: true, signal: settled.signal });
    if (signal.aborted) fail(signal.reason);
  };
  const pull = () => void message.resume();
  const strategy = new ByteLengthQueuingStrategy({ highWaterMark: BUFFERED_BYTES });
  return new ReadableStream({ start, pull, cancel: finish }, strategy);
}

/** The error of a body, announced or read, that passes the limit. */
export function tooLarge({
  host,
  maxBytes,
}: Pick<BodyLimits, 'host' | 'maxBytes'>): SafeFetchError {
  return new SafeFetchError(
    'too_large',
    `${host} answered with more than ${maxBytes} bytes; ask for less or raise maxBytes.`,
  );
}
