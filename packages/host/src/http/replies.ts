import { randomUUID } from 'node:crypto';
import { STATUS_CODES } from 'node:http';
import type { RouteReply } from '@sibyl/plugin-kit/surface';
import { type ErrorBody, OracleError, type Reply } from '@sibyl/protocol';
import { abortableIterable, createAbortReason } from '@sibyl/server-kit';
import type { Response } from 'express';
import type { Logger } from 'pino';
import type { Caller } from '../auth/caller.js';
import { startTurnSpan } from '../observability/spans.js';
import type { AnswerDetailsStore } from '../store/answer-details.js';
import type { Message, MessageStore } from '../store/message-store.js';
import type { Frame } from '../store/runs/frames.js';
import type { Session } from '../store/session-store.js';
import type { RunReader } from '../turns/read/run-reader.js';
import { toMessageViews } from '../turns/run/message-parts.js';
import { toUsageField } from '../turns/run/run-log.js';
import type { TurnAccess } from '../turns/start/turn-access.js';

interface ReplySenderDeps {
  readonly reader: RunReader;
  readonly access: Pick<TurnAccess, 'limit'>;
  readonly messages: MessageStore;
  readonly details: AnswerDetailsStore;
  readonly slots: StreamSlots;
  readonly streamStallMs: number;
  readonly logger: Logger;
}

/** Errors with a code are expected, such as that another host continues the run. */
function logStreamError(logger: Logger, err: unknown, details: object): void {
  if (err instanceof OracleError)
    logger.info({ ...details, code: err.code }, 'a stream ended early; its client can reconnect');
  else logger.error({ ...details, err }, 'stream failed');
}

/** Sends the answer of a run as a stream or as a whole. */
export class ReplySender {
  constructor(private readonly deps: ReplySenderDeps) {}

  /** Requests that wait for or stream an answer. */
  get streamCount(): number {
    return this.deps.slots.size;
  }

  /** Runs a task in one of the user's slots; throws before it begins if all are taken. */
  async withSlot(owner: string, work: () => Promise<void>): Promise<void> {
    const release = this.deps.slots.take(owner);
    try {
      await work();
    } finally {
      release();
    }
  }

  /** Sends the frames of a run of the caller after a number; ends early if the caller loses access. */
  async sendStream(
    caller: Caller,
    { runId, after }: { readonly runId: string; readonly after: number },
    response: Response,
  ): Promise<void> {
    const { reader, access, streamStallMs, logger } = this.deps;
    const run = await reader.find({ owner: caller.did, runId });
    // So that the trace of the turn shows who read it and where.
    const span = startTurnSpan(run, { kind: 'read', name: run.runId });
    await sendSse(response, {
      runId: run.runId,
      stallMs: streamStallMs,
      frames: (gone) => reader.read(run, after, access.limit(caller, gone)),
      onError: (err) => logStreamError(logger, err, { runId: run.runId, did: run.owner }),
    });
    span?.end();
  }

  /** Sends events that are not those of a run; an event that is lost is not sent again. */
  async sendEvents(
    event: string,
    response: Response,
    read: (gone: AbortSignal) => AsyncIterable<readonly object[]>,
  ): Promise<void> {
    const { streamStallMs: stallMs, logger } = this.deps;
    const onError = (err: unknown) => logStreamError(logger, err, { event });
    await sendSse(response, { stallMs, onError, frames: (gone) => toFrames(event, read(gone)) });
  }

  /**
   * Waits for the end of the run; the answer of a canceled run is partial. Throws if there is no answer, unless the
   * user canceled the run, and if the caller loses access. Undefined as soon as the client has disconnected.
   */
  async waitForReply(
    caller: Caller,
    runId: string,
    response: Response,
  ): Promise<Reply | undefined> {
    const { reader, access } = this.deps;
    const run = await reader.find({ owner: caller.did, runId });
    const limit = access.limit(caller, createCloseSignal(response));
    const ended = await reader.outcome(run, limit);
    if (!ended && limit.reason instanceof OracleError) throw limit.reason;
    if (!ended) return undefined;
    const { status, messageId, text, usage, error, pending, ...outcome } = ended;
    if (error && text === '') throw error;
    const failure =
      status === 'failed' && error ? [{ code: error.code, message: error.message }] : [];
    const warnings = [...outcome.warnings, ...failure];
    const { sessionId, requestId } = run;
    return {
      message: { type: 'ai', content: text, id: messageId ?? '' },
      sessionId,
      requestId,
      status,
      ...(warnings.length > 0 && { warnings }),
      ...(pending && { pending: [...pending] }),
      ...toUsageField(usage),
    };
  }

  /** The body of a request that takes long; ends with an error if the caller loses access. */
  limitBody<T>(caller: Caller, response: Response, body: AsyncIterable<T>): AsyncIterable<T> {
    const limit = this.deps.access.limit(caller, createCloseSignal(response));
    const lost = new AbortController();
    // The body itself reports that the client has disconnected.
    const onEnd = () => limit.reason instanceof OracleError && lost.abort(limit.reason);
    limit.addEventListener('abort', onEnd, { once: true });
    return abortableIterable(body, lost.signal);
  }

  /** Sends bytes; disconnects if the caller loses access. */
  async sendBytes(
    caller: Caller,
    response: Response,
    answer: Omit<BytesAnswer, 'stallMs' | 'onError'>,
  ): Promise<void> {
    const { access, streamStallMs: stallMs, logger } = this.deps;
    const onError = (err: unknown) => logStreamError(logger, err, {});
    const ended = access.limit(caller, createCloseSignal(response));
    ended.addEventListener('abort', () => response.destroy(), { once: true });
    await sendBytes(response, { ...answer, stallMs, onError });
  }

  /** Sends the messages of the active path, oldest first, together with other fields. */
  async sendTranscript(
    { owner, sessionId, branch, isBranched }: Session,
    response: Response,
    fields: object = {},
  ): Promise<void> {
    const { messages, details, streamStallMs: stallMs, logger } = this.deps;
    const path = { owner, sessionId, branch, isBranched };
    const pages = toViews(messages.pages(path), details);
    const onError = (err: unknown) =>
      logger.error({ err, sessionId, did: owner }, 'list of messages failed');
    await sendList(response, { fields, name: 'messages', pages, stallMs, onError });
  }
}

async function* toFrames(event: string, batches: AsyncIterable<readonly object[]>) {
  let seq = 0;
  for await (const batch of batches)
    yield batch.map((data) => {
      seq += 1;
      return { seq, event, data: JSON.stringify(data) };
    });
}

async function* toViews(pages: AsyncIterable<readonly Message[]>, details: AnswerDetailsStore) {
  for await (const page of pages) yield toMessageViews(page, details);
}

/** Seconds after which an answer has probably ended. */
const RETRY_SECONDS = 5;

/** Limits the requests of each user that wait for or stream an answer, in all sessions. */
export class StreamSlots {
  private readonly maxPerUser: number;
  private readonly perUser = new Map<string, number>();
  private total = 0;

  constructor(maxPerUser: number) {
    this.maxPerUser = maxPerUser;
  }

  /** Of all users. */
  get size(): number {
    return this.total;
  }

  /** Takes a slot at once and returns the function that releases it; throws if the user has none left. */
  take(owner: string): () => void {
    const taken = this.perUser.get(owner) ?? 0;
    if (taken >= this.maxPerUser)
      throw new OracleError('too_many_streams', { retryAfterSeconds: RETRY_SECONDS });
    this.perUser.set(owner, taken + 1);
    this.total += 1;
    return () => {
      this.total -= 1;
      const left = (this.perUser.get(owner) ?? 1) - 1;
      if (left > 0) this.perUser.set(owner, left);
      else this.perUser.delete(owner);
    };
  }
}

const HEARTBEAT_MS = 15_000;
/** How much is written to a connection before waiting for it to drain. */
const CHUNK_CHARACTERS = 64 * 1024;

export interface SseOptions {
  /** The run whose frames are sent, if any. */
  readonly runId?: string | undefined;
  /** How long a client may read nothing before it is disconnected; it can reconnect and continue. */
  readonly stallMs: number;
  /** Opens the source; the signal fires when the client has disconnected. */
  readonly frames: (gone: AbortSignal) => AsyncIterable<readonly Frame[]>;
  /** Called if the source fails: it is too late for an error response. */
  readonly onError?: ((error: unknown) => void) | undefined;
}

/** Sends frames as server-sent events at the pace of the client, up to the last frame. */
export async function sendSse(response: Response, options: SseOptions): Promise<void> {
  // A stream may last for hours, and the bytes of its request are no longer needed.
  Object.assign(response.req, { rawBody: undefined });
  const gone = createCloseSignal(response);
  response.writeHead(200, {
    'Content-Type': 'text/event-stream',
    'Cache-Control': 'no-cache, no-transform',
    'X-Accel-Buffering': 'no',
    ...(options.runId && { 'X-Run-Id': options.runId }),
  });
  // A HEAD request receives no frames, so it must not wait for the end of the run.
  if (response.req.method === 'HEAD') return void response.end();
  response.flushHeaders();
  const heartbeat = setInterval(() => beat(response), HEARTBEAT_MS);
  try {
    for await (const frames of options.frames(gone)) {
      for (const chunk of toChunks(frames)) await writePaced(response, chunk, options.stallMs);
    }
    response.end();
  } catch (error) {
    if (!(error instanceof ReaderGoneError)) options.onError?.(error);
    // The status is sent, so only disconnecting is left; the client can reconnect.
    response.destroy();
  } finally {
    clearInterval(heartbeat);
  }
}

/** Sends what a route of a plugin returned, at the pace of the client. An error before the first chunk is thrown. */
export async function sendRouteReply(
  response: Response,
  { options: { status = 200, headers = {}, stream } }: RouteReply,
  { stallMs, onError }: Pick<SseOptions, 'stallMs' | 'onError'>,
): Promise<void> {
  Object.assign(response.req, { rawBody: undefined });
  const chunks = stream?.[Symbol.asyncIterator]();
  let next = await chunks?.next();
  exposeHeaders(response, Object.keys(headers));
  response.writeHead(status, headers);
  if (response.req.method === 'HEAD') {
    response.end();
    return void (await chunks?.return?.());
  }
  const heartbeat = setInterval(() => beat(response), HEARTBEAT_MS);
  try {
    for (; chunks && next && !next.done; next = await chunks.next())
      await writePaced(response, next.value, stallMs);
    response.end();
  } catch (error) {
    await chunks?.return?.();
    if (!(error instanceof ReaderGoneError)) onError?.(error);
    response.destroy();
  } finally {
    clearInterval(heartbeat);
  }
}

/** Lets pages of other origins read the headers of a plugin's route, except those of the transport. */
function exposeHeaders(response: Response, names: readonly string[]): void {
  const own = names.filter((name) => !TRANSPORT_HEADERS.has(name.toLowerCase()));
  if (own.length === 0) return;
  const exposed = response.getHeader('Access-Control-Expose-Headers');
  response.setHeader('Access-Control-Expose-Headers', [exposed ?? [], own].flat().join(','));
}

const TRANSPORT_HEADERS: ReadonlySet<string> = new Set([
  'cache-control',
  'connection',
  'content-length',
  'content-type',
  'x-accel-buffering',
]);

/** A client with unread data needs no heartbeat. */
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

const DISCONNECTED = createAbortReason('The client has disconnected');

/** The signal fires when the connection of the response closes. */
export function createCloseSignal(response: Response): AbortSignal {
  const closed = new AbortController();
  if (response.destroyed) closed.abort(DISCONNECTED);
  else response.once('close', () => closed.abort(DISCONNECTED));
  return closed.signal;
}

/** The client has disconnected or reads nothing: not an error of the host. */
class ReaderGoneError extends Error {
  override readonly name = 'ReaderGoneError';
}

/** Writes and waits for the client to drain; rejects if it has disconnected or reads nothing for `stallMs`. */
async function writePaced(
  response: Response,
  chunk: string | Uint8Array,
  stallMs: number,
): Promise<void> {
  if (response.destroyed) throw new ReaderGoneError('The client has disconnected');
  if (!response.write(chunk)) await waitForDrain(response, stallMs);
}

function waitForDrain(response: Response, stallMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (isDrained: boolean) => {
      clearTimeout(limit);
      response.off('drain', onDrain).off('close', onClose);
      if (isDrained) resolve();
      else reject(new ReaderGoneError('The client reads nothing'));
    };
    const onDrain = () => settle(true);
    const onClose = () => settle(false);
    const limit = setTimeout(onClose, stallMs);
    response.once('drain', onDrain).once('close', onClose);
  });
}

/** The body of an error response, in Nest and outside of it. */
export function toErrorBody(error: OracleError, requestId: string): ErrorBody {
  return {
    statusCode: error.status,
    message: error.lines ? [...error.lines] : error.message,
    error: STATUS_CODES[error.status] ?? 'Error',
    code: error.code,
    ...error.fields,
    requestId,
  };
}

/** A complete HTTP response, for connections without a response object. */
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

interface BytesAnswer {
  readonly headers: Readonly<Record<string, string>>;
  readonly status: 200 | 206;
  readonly bytes: AsyncIterable<Uint8Array>;
  readonly stallMs: number;
  readonly onError: (error: unknown) => void;
}

/** Sends bytes with one piece in memory at a time. An error before the first piece is thrown. */
async function sendBytes(response: Response, answer: BytesAnswer): Promise<void> {
  const pieces = answer.bytes[Symbol.asyncIterator]();
  const isHead = response.req.method === 'HEAD';
  let next = isHead ? undefined : await pieces.next();
  response.status(answer.status).set(answer.headers);
  try {
    while (next && !next.done) {
      await writePaced(response, next.value, answer.stallMs);
      next = await pieces.next();
    }
    response.end();
  } catch (error) {
    if (!(error instanceof ReaderGoneError)) answer.onError(error);
    // The status is sent, so only disconnecting is left.
    response.destroy();
  } finally {
    await pieces.return?.();
  }
}

export interface ListAnswer {
  /** Fields besides the list. */
  readonly fields: object;
  /** The name of the list, which comes last. */
  readonly name: string;
  readonly pages: AsyncIterable<readonly unknown[]>;
  /** How long a client may read nothing before it is disconnected. */
  readonly stallMs: number;
  /** Called if the list fails after it has begun: it is too late for an error response. */
  readonly onError?: ((error: unknown) => void) | undefined;
}

/** Sends a JSON object with a list of any length, with one page in memory at a time. */
export async function sendList(response: Response, answer: ListAnswer): Promise<void> {
  response.type('json');
  if (response.req.method === 'HEAD') return void response.end();
  try {
    for await (const text of stringifyList(answer)) {
      await writePaced(response, text, answer.stallMs);
    }
    response.end();
  } catch (error) {
    const isGone = error instanceof ReaderGoneError;
    if (!isGone && !response.headersSent) throw error;
    if (!isGone) answer.onError?.(error);
    // The status is sent, so only disconnecting is left.
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
