import { randomUUID } from 'node:crypto';
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { GrpcCode } from '@sibyl/grpc-client';
import {
  type ByteBudget,
  type ByteReservation,
  ChunkCounter,
  type ExceededLimit,
  readChunks,
} from '@sibyl/server-kit';
import { badRequest, QueryError } from '../query/query-error.js';
import { KEEP_ALIVE_SECONDS } from './server.js';

/** Printable ASCII. */
const REQUEST_ID = /^[\x20-\x7e]{1,256}$/;
/** Smaller bodies are not worth counting: the number of connections limits them. */
const COUNTED_FROM_BYTES = 16 * 1024;

/** Pages of other origins use CORS, to which Cross-Origin-Resource-Policy does not apply. */
const ISOLATION = {
  'X-Content-Type-Options': 'nosniff',
  'Cross-Origin-Resource-Policy': 'same-origin',
};

const NO_QUERY = new URLSearchParams();
const KEEP_ALIVE = `timeout=${KEEP_ALIVE_SECONDS}`;

/** One HTTP request and its response. */
export class RequestContext {
  readonly startedAt = performance.now();
  /** The path, still percent-encoded. */
  readonly path: string;
  /** The query without its question mark, still percent-encoded. */
  readonly search: string;
  /** From the request, if it is well-formed. */
  requestId: string | undefined;
  /** Headers of every response; sent in one call, which is fastest. */
  readonly headers: OutgoingHttpHeaders;
  /** The key of the caller in the limits on memory, once known. */
  callerKey = '';
  /** The gRPC method or path, for metrics. */
  subject = 'unmatched';
  /** The requested height, once known. */
  height: number | undefined;
  private parsedQuery: URLSearchParams | undefined;

  constructor(
    readonly request: IncomingMessage,
    readonly response: ServerResponse,
  ) {
    const target = readTarget(request.url ?? '/');
    const mark = target.indexOf('?');
    this.path = mark < 0 ? target : target.slice(0, mark);
    this.search = mark < 0 ? '' : target.slice(mark + 1);
    this.headers = { ...ISOLATION };
    const given = request.headers['x-request-id'];
    if (typeof given === 'string' && REQUEST_ID.test(given)) this.identify(given);
  }

  /** Sets the request id unless there is one, for the response and the log. */
  identify(id: string = randomUUID()): string {
    this.requestId ??= id;
    this.headers['X-Request-Id'] = this.requestId;
    return this.requestId;
  }

  /** Do not modify: requests without a query share one object. */
  get query(): URLSearchParams {
    if (this.search === '') return NO_QUERY;
    this.parsedQuery ??= new URLSearchParams(this.search);
    return this.parsedQuery;
  }

  get method(): string {
    return this.request.method ?? 'GET';
  }

  /** Sends a complete response. */
  send(status: number, headers?: OutgoingHttpHeaders, body?: Buffer | string): void {
    this.begin(status, headers);
    if (typeof body === 'string') this.response.end(body, 'latin1');
    else this.response.end(body);
  }

  /** Sends a response whose body is in several pieces. */
  sendPieces(headers: OutgoingHttpHeaders, pieces: readonly Buffer[]): void {
    this.begin(200, headers);
    this.response.cork();
    for (const piece of pieces) this.response.write(piece);
    this.response.end();
  }

  /** Reserves the memory of a body until it is sent or the client disconnects. Throws 429 or 503. */
  holdMemory(body: Buffer, outgoing: ByteBudget): void {
    if (body.length < COUNTED_FROM_BYTES || this.response.destroyed) return;
    const { ok: release, error } = outgoing.reserveShared(this.callerKey, body);
    if (error !== undefined) throw holdsTooMuch(error);
    this.response.on('close', release);
  }

  /** Sends status and headers. */
  begin(status: number, headers?: OutgoingHttpHeaders): void {
    if (headers) Object.assign(this.headers, headers);
    if (this.response.shouldKeepAlive && this.headers.Connection === undefined) {
      this.headers['Keep-Alive'] = KEEP_ALIVE;
    }
    this.response.writeHead(status, this.headers);
  }
}

const ORIGIN = /^https?:\/\/[^/?#]*/i;

/** The path and query; clients that expect a proxy send a whole URL. */
function readTarget(url: string): string {
  if (url.startsWith('/')) return url;
  const target = url.replace(ORIGIN, '');
  return target === '' || target.startsWith('?') ? `/${target}` : target;
}

const MAX_BYTES = 1024 * 1024;

/** Reads a request's body up to a limit; reserves its memory before the first byte. */
export async function readBody(context: RequestContext, incoming: ByteBudget): Promise<Buffer> {
  const { request, callerKey } = context;
  const declared = request.headers['content-length'];
  const expected = declared === undefined ? MAX_BYTES : Number(declared);
  if (expected > MAX_BYTES) throw tooLarge();
  const { ok: reservation, error } = incoming.reserve(callerKey, expected);
  if (error !== undefined) throw holdsTooMuch(error);
  const counter = new ChunkCounter();
  try {
    return await readChunks(request, (chunk, length) => {
      if (length > MAX_BYTES) throw tooLarge();
      if (counter.add(chunk)) throw tooLarge('the body arrives in too many small chunks');
    });
  } catch (error) {
    throw error instanceof QueryError ? error : badRequest('the body is incomplete');
  } finally {
    reservation.release();
  }
}

/** Lets a reservation hold this many bytes. Throws 429 or 503. */
export function holdBytes(memory: ByteReservation, bytes: number): void {
  const exceeded = memory.resize(bytes);
  if (exceeded !== undefined) throw holdsTooMuch(exceeded);
}

const RETRY_SECONDS = '5';

/** 429 if the caller exceeds its limit, 503 if all callers together do. */
function holdsTooMuch(limit: ExceededLimit): QueryError {
  const [code, what] =
    limit === 'key'
      ? [GrpcCode.resourceExhausted, 'your requests in progress']
      : [GrpcCode.unavailable, 'requests in progress'];
  const text = `${what} hold too much memory; try again in ${RETRY_SECONDS} seconds`;
  return new QueryError(code, text, { headers: { 'Retry-After': RETRY_SECONDS } });
}

function tooLarge(text = `the body has more than ${MAX_BYTES} bytes`): QueryError {
  // The rest is not read, so the connection cannot be reused.
  const headers = { Connection: 'close' };
  return new QueryError(GrpcCode.invalidArgument, text, { status: 413, headers });
}

/** Sends an uncacheable JSON response of the gateway itself. */
export function sendJson(context: RequestContext, status: number, value: object): void {
  sendJsonText(context, status, Buffer.from(JSON.stringify(value)));
}

/** Sends serialized JSON. */
export function sendJsonText(context: RequestContext, status: number, body: Buffer): void {
  const headers = {
    'Content-Type': 'application/json',
    'Content-Length': body.length,
    'Cache-Control': 'no-store',
  };
  context.send(status, headers, body);
}

/** Sends an error in a node's format. */
export function sendError(context: RequestContext, error: QueryError): void {
  Object.assign(context.headers, error.headers);
  sendJsonText(context, error.status, Buffer.from(formatError(error)));
}

/** The JSON of an error, escaped as Go does. */
export function formatError({ code, message }: Pick<QueryError, 'code' | 'message'>): string {
  const json = JSON.stringify({ code, message, details: [] });
  return json.replace(
    /[<>&\u2028\u2029]/g,
    (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
