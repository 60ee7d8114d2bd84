import { finished, PassThrough, type Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { BusboyHeaders } from '@fastify/busboy';
import { OracleError } from '@sibyl/protocol';
import { ChunkCounter, TimeoutError, withTimeout } from '@sibyl/server-kit';
import type { Request } from 'express';

/** How long a client may send nothing. */
const STALL_MS = 30_000;
/** Bytes per second after the first minute: slower clients would occupy the slots of others for hours. */
const MIN_RATE = 8 * 1024;
const GRACE_MS = 60_000;

/** A file in the body of a request. */
export interface UploadBody {
  readonly name: string | undefined;
  /** The length of the body. */
  readonly declaredBytes: number | undefined;
  readonly isForm: boolean;
  readonly body: AsyncIterable<Uint8Array>;
}

/** Opens the file in a body: the body itself, or the first file of a form. */
export async function openUpload(request: Request, name: string | undefined): Promise<UploadBody> {
  const { 'content-encoding': encoding = 'identity', 'content-length': length } = request.headers;
  if (encoding.toLowerCase() !== 'identity')
    throw new OracleError('unsupported_media_type', {
      message: 'Send the file as it is, without a Content-Encoding',
    });
  const declaredBytes = length === undefined ? undefined : Number(length);
  if (request.is('multipart/form-data'))
    return { ...(await openForm(request, name)), declaredBytes, isForm: true };
  return { name, declaredBytes, isForm: false, body: limitTime(limitChunks(request)) };
}

/**
 * Ends a body in tiny chunks, which are counted as they arrive: an iterator of the request would join them. The request
 * itself is only paused, for the response to a rejected body.
 */
export function limitChunks(request: Request): Readable {
  // An error is reported to the reader, who may come later.
  const body = new PassThrough().on('error', () => {});
  const counter = new ChunkCounter();
  request.on('data', (chunk: Buffer) => {
    if (counter.add(chunk)) body.destroy(createSmallChunksError());
  });
  finished(request, { writable: false }, (error) => {
    if (error) body.destroy(error);
  });
  return request.pipe(body);
}

const createSmallChunksError = () =>
  new OracleError('invalid_upload', {
    message: 'The file arrives in too many small chunks; send larger ones',
  });

interface FormFile {
  readonly stream: Readable;
  readonly filename: string | undefined;
}

/** The rest of the form is read after its file. */
async function openForm(
  request: Request,
  name: string | undefined,
): Promise<Pick<UploadBody, 'name' | 'body'>> {
  const { form, file } = await parseForm(request);
  const ended = pipeline(limitChunks(request), form);
  // Reported to the caller that waits for the file or the end.
  ended.catch(() => {});
  const { stream, filename } = await withTimeout(
    { ms: STALL_MS, message: 'the form has no file' },
    () => Promise.race([file, ended.then(() => Promise.reject(toUploadError()))]),
  ).catch((error) => {
    throw toUploadError(error);
  });
  ended.catch((error) => stream.destroy(error));
  return { name: name ?? filename, body: readForm(stream, ended) };
}

async function* readForm(stream: Readable, ended: Promise<void>): AsyncGenerator<Uint8Array> {
  yield* limitTime(stream);
  await ended.catch((error) => {
    throw toUploadError(error);
  });
}

async function parseForm(request: Request) {
  // Loaded with the first form.
  const { Busboy } = await import('@fastify/busboy');
  const { promise: file, resolve, reject } = Promise.withResolvers<FormFile>();
  file.catch(() => {});
  try {
    const form = new Busboy({
      headers: request.headers as BusboyHeaders,
      limits: { files: 1, fields: 20, fieldSize: 4096, parts: 21, headerPairs: 50 },
    });
    form.on('file', (_field, stream, filename) => {
      // The end of the form reports it too.
      stream.on('error', () => {});
      resolve({ stream, filename });
    });
    form.on('error', reject);
    return { form, file };
  } catch (error) {
    // A form without a boundary.
    throw toUploadError(error);
  }
}

const toUploadError = (cause?: unknown): OracleError =>
  cause instanceof OracleError ? cause : new OracleError('invalid_upload', { cause });

/** Ends an upload whose client sends nothing, or too slowly. */
export async function* limitTime(stream: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const startedAt = performance.now();
  const pieces = stream[Symbol.asyncIterator]();
  const limit = { ms: STALL_MS, message: 'the client sends nothing' };
  let waitedMs = 0;
  let bytes = 0;
  try {
    for (;;) {
      const askedAt = performance.now();
      const { done, value } = await withTimeout(limit, () => pieces.next());
      if (done) return;
      bytes += value.length;
      // Only the time of the client counts, not that of the store.
      waitedMs += performance.now() - askedAt;
      if (performance.now() - startedAt > GRACE_MS && bytes < (waitedMs / 1000) * MIN_RATE)
        throw new OracleError('request_timeout');
      yield value;
    }
  } catch (error) {
    if (error instanceof TimeoutError) throw new OracleError('request_timeout');
    throw toUploadError(error);
  } finally {
    // Not awaited: a client that sends nothing would delay it.
    void pieces.return?.()?.catch(() => {});
  }
}
