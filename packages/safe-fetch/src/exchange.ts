import http, { type IncomingMessage, type RequestOptions } from 'node:http';
import https from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import { SafeFetchError, toSafeFetchError } from './safe-fetch-error.js';

export interface ConnectionLimits {
  /** Requests in progress to all hosts together, from the look-up of the name to the last byte. */
  readonly maxConnections: number;
  /** The same for one host, so that one that hangs leaves room for the others. */
  readonly maxConnectionsPerHost: number;
}

/** A request's place among those in progress. */
export interface ConnectionSlot {
  /** Moves to the host that a redirect names; throws as `take` does. */
  move(host: string): void;
  release(): void;
}

/** Counts requests in progress and refuses those beyond the limits; none waits. */
export class ConnectionSlots {
  private readonly hosts = new Map<string, number>();
  private total = 0;

  constructor(private readonly limits: ConnectionLimits) {}

  /** Throws a `busy` SafeFetchError where a limit is reached. */
  take(host: string): ConnectionSlot {
    let current: string | undefined;
    const release = () => {
      if (current !== undefined) this.leave(current);
      current = undefined;
    };
    const move = (next: string) => {
      if (next === current) return;
      release();
      this.enter(next);
      current = next;
    };
    move(host);
    return { move, release };
  }

  private enter(host: string): void {
    const { maxConnections, maxConnectionsPerHost } = this.limits;
    const open = this.hosts.get(host) ?? 0;
    if (open >= maxConnectionsPerHost)
      throw new SafeFetchError('busy', `${open} requests to ${host} are in progress; ${RETRY}.`);
    if (this.total >= maxConnections)
      throw new SafeFetchError('busy', `${this.total} requests are in progress; ${RETRY}.`);
    this.hosts.set(host, open + 1);
    this.total += 1;
  }

  private leave(host: string): void {
    const open = (this.hosts.get(host) ?? 1) - 1;
    if (open > 0) this.hosts.set(host, open);
    else this.hosts.delete(host);
    this.total -= 1;
  }
}

const RETRY = 'try again later';

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);
const BODILESS = new Set(['GET', 'HEAD']);
const REDIRECTS = new Set([301, 302, 303, 307, 308]);

/** Framing, routing and hop-by-hop headers are this package's to set. */
const OWN_HEADERS = [
  'accept-encoding',
  'connection',
  'content-length',
  'expect',
  'host',
  'keep-alive',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
];

/** All that a redirect to another origin may carry; a list of secrets could never be complete. */
const HARMLESS_HEADERS = new Set(['accept', 'accept-language', 'user-agent', 'content-type']);

/** One request as it goes out; redirects make a new one. */
export interface OutgoingRequest {
  readonly url: URL;
  readonly method: string;
  readonly headers: Headers;
  readonly body: Uint8Array | undefined;
}

/** Reads fetch's init; the body is buffered, so that a 307 can send it again. */
export async function toOutgoingRequest(url: URL, init: RequestInit): Promise<OutgoingRequest> {
  const method = (init.method ?? 'GET').toUpperCase();
  if (!METHODS.has(method)) throw new TypeError(`The method ${method} is not supported.`);
  const headers = new Headers(init.headers);
  for (const name of OWN_HEADERS) headers.delete(name);
  if (init.body === undefined || init.body === null) {
    return { url, method, headers, body: undefined };
  }
  if (BODILESS.has(method)) throw new TypeError(`A ${method} request has no body.`);
  const carrier = new Response(init.body);
  const type = carrier.headers.get('content-type');
  if (type && !headers.has('content-type')) headers.set('content-type', type);
  return { url, method, headers, body: new Uint8Array(await carrier.arrayBuffer()) };
}

/** Whether a status redirects the client. */
export function isRedirect(status: number): boolean {
  return REDIRECTS.has(status);
}

/** The request after a redirect: method as fetch changes it, and no credentials for another origin. */
export function redirectedRequest(
  request: OutgoingRequest,
  status: number,
  url: URL,
): OutgoingRequest {
  const method = redirectedMethod(request.method, status);
  const keepsBody = method === request.method;
  const headers = new Headers();
  for (const [name, value] of request.headers) {
    const crosses = url.origin === request.url.origin || HARMLESS_HEADERS.has(name);
    if (crosses && (keepsBody || !name.startsWith('content-'))) headers.append(name, value);
  }
  return { url, method, headers, body: keepsBody ? request.body : undefined };
}

function redirectedMethod(method: string, status: number): string {
  if (status === 303 && method !== 'HEAD') return 'GET';
  if ((status === 301 || status === 302) && method === 'POST') return 'GET';
  return method;
}

interface Route {
  /** Checked addresses; the host name is never looked up again. */
  readonly addresses: readonly string[];
  readonly ca: string | undefined;
  readonly signal: AbortSignal;
}

/** Sends one request to a checked address; Host and SNI stay the name in the URL. */
export function sendRequest(request: OutgoingRequest, route: Route): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const transport = request.url.protocol === 'https:' ? https : http;
    const outgoing = transport.request(request.url, requestOptions(request, route));
    outgoing.on('response', resolve);
    outgoing.on('error', reject);
    // Should neither come, nothing else would end the wait.
    outgoing.on('close', () => reject(new Error('closed without a response')));
    outgoing.end(request.body);
  });
}

function requestOptions(request: OutgoingRequest, route: Route): https.RequestOptions {
  const headers: Record<string, string> = { ...Object.fromEntries(request.headers) };
  headers['accept-encoding'] = 'identity';
  // Node frames the body of a DELETE only if its length is set.
  if (request.body) headers['content-length'] = String(request.body.length);
  const options: RequestOptions = {
    method: request.method,
    headers,
    // No pooled socket: it could lead to an address that another rule had checked.
    agent: false,
    lookup: pinnedLookup(route.addresses),
    signal: route.signal,
  };
  return route.ca === undefined ? options : { ...options, ca: route.ca };
}

function pinnedLookup(addresses: readonly string[]): LookupFunction {
  const answers = addresses.map((address) => ({ address, family: isIP(address) }));
  return (_hostname, options, callback) => {
    if (options.all) return callback(null, answers);
    const [first] = answers;
    if (first) callback(null, first.address, first.family);
    else callback(new Error('no checked address'), '');
  };
}

/** Statuses that a Response may only have without a body. */
const NULL_BODY = new Set([204, 205, 304]);

/** Turns Node's answer into a web Response whose body keeps the limits. */
export function toResponse(
  message: IncomingMessage,
  request: OutgoingRequest,
  limits: BodyLimits,
): Response {
  const headers = toHeaders(message);
  const status = message.statusCode ?? 0;
  const isEmpty = request.method === 'HEAD' || NULL_BODY.has(status);
  if (!isEmpty) checkBodyHeaders(headers, limits);
  const body = isEmpty ? null : limitedBody(message, limits);
  if (isEmpty) {
    message.destroy();
    limits.deadline.clear();
  }
  const response = new Response(body, { status, statusText: message.statusMessage ?? '', headers });
  // A constructed Response has no url, and callers want to know where redirects ended.
  return Object.defineProperty(response, 'url', { value: request.url.href });
}

function toHeaders(message: IncomingMessage): Headers {
  const headers = new Headers();
  for (let i = 0; i + 1 < message.rawHeaders.length; i += 2) {
    headers.append(message.rawHeaders[i] ?? '', message.rawHeaders[i + 1] ?? '');
  }
  return headers;
}

function checkBodyHeaders(headers: Headers, limits: BodyLimits): void {
  const encoding = headers.get('content-encoding')?.trim().toLowerCase() || 'identity';
  // Never decompressed, so a small answer cannot unfold into a large one.
  if (encoding !== 'identity') {
    throw new SafeFetchError(
      'network',
      `${limits.host} answered with content-encoding ${encoding}; it must send the plain body.`,
    );
  }
  if (!(Number(headers.get('content-length')) <= limits.maxBytes)) throw tooLarge(limits);
}

const BUFFERED_BYTES = 64 * 1024;
/** Smaller chunks count as this much: each takes microseconds to receive, and its sender spends six bytes. */
const MIN_CHUNK_BYTES = 64;
/** Padding that is not counted, so that a small body may arrive in any chunks. */
const FREE_PADDING_BYTES = 64 * 1024;

export interface BodyLimits {
  readonly host: string;
  readonly maxBytes: number;
  readonly deadline: Deadline;
}

/** Streams a body as fast as it is read; past the size or time limit the stream errors and the socket closes. */
function limitedBody(message: IncomingMessage, limits: BodyLimits): ReadableStream {
  let received = 0;
  let padding = -FREE_PADDING_BYTES;
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
      padding += Math.max(0, MIN_CHUNK_BYTES - chunk.length);
      if (!(received + Math.max(0, padding) <= limits.maxBytes)) return fail(tooLarge(limits));
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

/** One time limit over a whole exchange, DNS and body included. */
export interface Deadline {
  /** Aborts with a `timeout` SafeFetchError, or with the caller's own reason. */
  readonly signal: AbortSignal;
  clear(): void;
}
