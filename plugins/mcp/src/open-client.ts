import { AsyncLocalStorage } from 'node:async_hooks';
import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type {
  AuthProvider,
  Client,
  ElicitRequest,
  ElicitResult,
  FetchLike,
  OAuthClientProvider,
  Transport,
} from '@modelcontextprotocol/client';
import { type Logger, type PluginContext, SafeFetchError, withTimeout } from '@sibyl/plugin-kit';
import { hasShortHost, JsonTextLimit } from '@sibyl/protocol';
import type { HttpServer, McpServer } from './config.js';
import { MAX_REPLY_BYTES, ReplyStream, tooLargeError, VALUES } from './reply-limits.js';

/** An event has lines before its data. */
const MAX_EVENT_BYTES = MAX_REPLY_BYTES + 4096;
/** The most that a document about signing in may have. */
const MAX_DOCUMENT_BYTES = 128 * 1024;
/** A stream that has carried this much is opened again. */
const MAX_STREAM_BYTES = 64 * 1024 ** 2;
const FIRST_EVENT_MS = 1500;
/** The shortest time between two continuations of streams, however soon a server wants them. */
const CONTINUE_MS = 250;
/** Requests of a server that are not answered yet: each one takes much memory. A shared server asks all of its users. */
const MAX_REQUESTS = { owned: 32, shared: 256 };

/** A server, and what connects to it. */
export interface ClientTarget {
  readonly name: string;
  readonly server: McpServer;
  readonly fetch: PluginContext['fetch'];
  readonly logger: Logger;
  readonly auth?: AuthProvider | OAuthClientProvider | undefined;
  /** Whether it belongs to one user: it then holds no stream open between calls. */
  readonly isOwned?: boolean | undefined;
}

export interface ClientEvents {
  readonly onToolsChanged: () => void;
  /** The connection ended and has to be opened again. */
  readonly onLost: (error: Error) => void;
}

/** A call in progress: the messages that arrive with its reply belong to it. */
export interface CallScope {
  readonly elicit: (params: ElicitRequest['params']) => Promise<ElicitResult>;
  /** The stream of the reply ended, and the server cannot resume it. */
  readonly onStreamEnd: () => void;
  /** The reply has more bytes or values than it may have. */
  readonly onTooLarge: () => void;
}

/** Finds the call whose reply is being read, so that a question reaches only its user. */
export const currentCall = new AsyncLocalStorage<CallScope>();

/** The SDK loads with the first server. */
export async function loadSdk() {
  try {
    return await import('@modelcontextprotocol/client');
  } catch (cause) {
    const message = 'The plugin mcp needs the package @modelcontextprotocol/client: install it';
    throw new Error(message, { cause });
  }
}

/** Connects to a server, with the newest transport and protocol version that it has. */
export async function openClient(target: ClientTarget, events: ClientEvents): Promise<Client> {
  const { name, server } = target;
  const limit = {
    ms: server.timeoutMs,
    message: `${name} did not accept the connection within ${server.timeoutMs / 1000} s`,
  };
  const attempts: Attempt[] = [];
  try {
    return await withTimeout(limit, (signal) => {
      const connect = (attempt: Attempt) => {
        signal.throwIfAborted();
        attempts.push(attempt);
        return connectTransport(attempt, target, events);
      };
      return 'url' in server
        ? connectHttp({ ...target, server }, events, connect)
        : connectStdio({ ...target, server }, connect);
    });
  } catch (error) {
    for (const { transport } of attempts) transport.close().catch(() => undefined);
    throw error;
  }
}

interface Attempt {
  readonly transport: Transport;
  readonly mode: 'auto' | 'legacy';
}

type Connect = (attempt: Attempt) => Promise<Client>;

async function connectTransport(
  { transport, mode }: Attempt,
  { server, logger, name, isOwned }: ClientTarget,
  { onToolsChanged, onLost }: ClientEvents,
): Promise<Client> {
  const { Client } = await loadSdk();
  const client = new Client(
    { name: 'sibyl', version: '0.1.0' },
    {
      capabilities: { elicitation: { form: {} } },
      versionNegotiation: { mode },
      listChanged: { tools: { autoRefresh: false, onChanged: onToolsChanged } },
    },
  );
  client.setRequestHandler('elicitation/create', async ({ params }) => {
    const call = currentCall.getStore();
    return call ? call.elicit(params) : { action: 'decline' };
  });
  // Concerns streams that not every server has; calls report their own errors.
  const logError = limitLog(
    (reason) => logger.info({ reason, server: name }, 'MCP error outside of a call'),
    () => logger.warn({ server: name }, 'many errors of an MCP server; further ones are left out'),
  );
  client.onerror = ({ message }) => logError(message);
  limitMessages(transport, {
    maxRequests: isOwned ? MAX_REQUESTS.owned : MAX_REQUESTS.shared,
    // Replies over HTTP are limited before they are parsed.
    limitReply: 'command' in server ? (message) => limitReply(message, name) : (message) => message,
  });
  await client.connect(transport, { timeout: server.timeoutMs });
  client.onclose = () => onLost(new Error('The connection was closed'));
  void keepListening(client, onToolsChanged);
  return client;
}

type Message = Parameters<NonNullable<Transport['onmessage']>>[0];

interface MessageLimits {
  readonly maxRequests: number;
  readonly limitReply: (message: Message) => Message;
}

/** Closes the connection of a server that asks much more than it lets the client answer, and limits its replies. */
function limitMessages(transport: Transport, { maxRequests, limitReply }: MessageLimits): void {
  const send = transport.send.bind(transport);
  const open: unknown[] = [];
  let receive: Transport['onmessage'];
  const end = (id: unknown) => {
    if (open.includes(id)) open.splice(open.indexOf(id), 1);
  };
  transport.send = async (message, options) => {
    await send(message, options).finally(() => 'method' in message || end(message.id));
  };
  const receiveLimited: typeof receive = (message, extra) => {
    if ('method' in message && 'id' in message) open.push(message.id);
    // The client does not answer what the server has canceled.
    else if ('method' in message && message.method === 'notifications/cancelled')
      end(message.params?.requestId);
    if (open.length <= maxRequests) receive?.(limitReply(message), extra);
    else transport.close().catch(() => undefined);
  };
  Object.defineProperty(transport, 'onmessage', {
    get: () => receive && receiveLimited,
    set: (handler: typeof receive) => {
      receive = handler;
    },
  });
}

/** Fails the request of a reply that is too large. */
function limitReply(message: Message, name: string): Message {
  if (!('result' in message) || typeof message.id !== 'number') return message;
  const isTooLarge = JSON.stringify(message.result).length > MAX_REPLY_BYTES;
  return isTooLarge ? tooLargeError(message.id, name) : message;
}

const LISTEN_AGAIN_MS = 500;
const MAX_LISTEN_AGAIN_MS = 30_000;

/** Servers of 2026-07-28 report changes on a stream, which the SDK does not open again when it ends. */
async function keepListening(client: Client, onToolsChanged: () => void): Promise<void> {
  let subscription = client.autoOpenedSubscription;
  if (!subscription) return;
  let openedAt = performance.now();
  for (let wait = LISTEN_AGAIN_MS; ; wait = Math.min(2 * wait, MAX_LISTEN_AGAIN_MS)) {
    if ((await subscription?.closed) === 'local') return;
    const isProven = subscription && performance.now() - openedAt > MAX_LISTEN_AGAIN_MS;
    if (isProven) wait = LISTEN_AGAIN_MS;
    await delay(wait, undefined, { ref: false });
    if (!client.transport) return;
    subscription = await client.listen({ toolsListChanged: true }).catch(() => undefined);
    openedAt = performance.now();
    if (subscription) onToolsChanged();
  }
}

type HttpTarget = ClientTarget & { readonly server: HttpServer };

/** What servers answer to a POST if they only have server-sent events. */
const isClientError = (status = 0) =>
  status >= 400 && status < 500 && ![401, 403, 429].includes(status);

/** Tries streamable HTTP first; servers from before it only have server-sent events. */
async function connectHttp(
  given: HttpTarget,
  events: ClientEvents,
  connect: Connect,
): Promise<Client> {
  const { StreamableHTTPClientTransport, SSEClientTransport } = await loadSdk();
  const target = { ...given, fetch: withHeaders(given) };
  const url = new URL(target.server.url);
  const options = target.auth ? { authProvider: target.auth } : {};
  const openStreamable = (mode: Attempt['mode']) => {
    const fetch = createHttpFetch(target);
    return connect({
      transport: new StreamableHTTPClientTransport(url, { ...options, fetch }),
      mode,
    });
  };
  try {
    return await openStreamable('auto');
  } catch (error) {
    // Some servers fail at a request of a newer version instead of rejecting it.
    if (isNegotiationError(error)) return openStreamable('legacy');
    if (!isClientError(readStatus(error))) throw error;
    const fetch = createSseFetch(target, events);
    const transport = new SSEClientTransport(url, { ...options, fetch });
    return connect({ transport, mode: 'legacy' }).catch((sseError) => {
      throw readStatus(sseError) === undefined ? sseError : error;
    });
  }
}

/** The server answered, but its version is unknown. */
function isNegotiationError(error: unknown): boolean {
  const isFailure =
    error instanceof Error && 'code' in error && error.code === 'ERA_NEGOTIATION_FAILED';
  return isFailure && !(error.cause instanceof SafeFetchError);
}

/** The HTTP status that an error of the SDK reports. */
export function readStatus(error: unknown): number | undefined {
  if (!(error instanceof Error)) return undefined;
  if ('status' in error && typeof error.status === 'number') return error.status;
  return error.name === 'SseError' && 'code' in error ? Number(error.code) || undefined : undefined;
}

/** The newest versions are negotiated with a second process, so that comes only after a failure. */
async function connectStdio(
  {
    server: { command, args, env },
    name,
    logger,
  }: ClientTarget & {
    readonly server: Exclude<McpServer, HttpServer>;
  },
  connect: Connect,
): Promise<Client> {
  const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio');
  const { ProtocolError } = await loadSdk();
  const start = (mode: Attempt['mode']) => {
    const transport = new StdioClientTransport({
      command,
      args,
      env,
      stderr: 'pipe',
      maxBufferSize: MAX_STREAM_BYTES,
    });
    if (transport.stderr instanceof Readable) logStderr(transport.stderr, { logger, name });
    return connect({ transport, mode });
  };
  return start('legacy').catch((error) => {
    if (error instanceof ProtocolError) return start('auto');
    throw error;
  });
}

const MAX_LINE_LENGTH = 2000;
const LINES_PER_MINUTE = 100;

/** Writes at most 100 short lines a minute, because servers decide what there is to write. */
function limitLog(write: (line: string) => void, onFull: () => void): (line: string) => void {
  let minute = 0;
  let count = 0;
  return (line) => {
    const now = Math.floor(performance.now() / 60_000);
    if (now !== minute) [minute, count] = [now, 0];
    count += 1;
    if (count <= LINES_PER_MINUTE) write(line.slice(0, MAX_LINE_LENGTH));
    if (count === LINES_PER_MINUTE) onFull();
  };
}

/** Logs what a process writes to stderr. */
function logStderr(
  stream: Readable,
  { logger, name }: Pick<ClientTarget, 'logger' | 'name'>,
): void {
  const log = (line: string) => logger.info({ server: name, line }, 'stderr of an MCP server');
  const write = limitLog(log, () => log('… further lines of this minute are left out'));
  let rest = '';
  stream.setEncoding('utf8');
  stream.on('data', (text: string) => {
    const lines = (rest + text).split(/\r?\n/);
    rest = (lines.pop() ?? '').slice(0, MAX_LINE_LENGTH);
    for (const line of lines) if (line.trim() !== '') write(line);
  });
  stream.on('end', () => rest && write(rest));
}

const isEventStream = (headers: Headers, name: string) =>
  headers.get(name)?.includes('text/event-stream') ?? false;

/** Whether a request opens a stream for messages that belong to no call. */
const opensStream = (init: RequestInit) =>
  (init.method ?? 'GET') === 'GET' && isEventStream(new Headers(init.headers), 'accept');

type FetchUrl = (
  url: string | URL,
  init?: Parameters<PluginContext['fetch']>[1],
) => Promise<Response>;

/** The configured headers may be secrets: they go to the server, not to an authorization server that it names. */
function withHeaders({ fetch, server }: HttpTarget): FetchUrl {
  const { origin } = new URL(server.url);
  const origins = [origin, origin.replace(/^http:/, 'https:')];
  return (url, init = {}) => {
    if (!origins.includes(new URL(url).origin)) return fetch(url, init);
    const headers = new Headers(server.headers);
    for (const [name, value] of new Headers(init.headers)) headers.set(name, value);
    return fetch(url, { ...init, headers });
  };
}

/** Whether a request opens a stream of changes, as 2026-07-28 defines it. */
const listens = (init: RequestInit) =>
  new Headers(init.headers).get('mcp-method') === 'subscriptions/listen';

const opensNewStream = (init: RequestInit) =>
  listens(init) || (opensStream(init) && !new Headers(init.headers).has('last-event-id'));

type FetchTarget = Pick<HttpTarget, 'server' | 'isOwned'> & { readonly fetch: FetchUrl };

/** Sends requests through safe-fetch, and bounds their replies in time and size. */
function createHttpFetch({ fetch, server, isOwned }: FetchTarget): FetchLike {
  const endpoint = new URL(server.url).href;
  let continuedAt = Number.NEGATIVE_INFINITY;
  return async (url, init = {}) => {
    // To the client this means that the server has no such stream.
    if (isOwned && opensNewStream(init)) return new Response(null, { status: 405 });
    if (opensStream(init)) {
      const waitMs = Math.max(0, continuedAt + CONTINUE_MS - performance.now());
      continuedAt = performance.now() + waitMs;
      await delay(waitMs, undefined, init.signal ? { signal: init.signal } : {});
      return fetchStream(fetch, url, init);
    }
    if (listens(init)) return fetchChanges(fetch, url, init);
    // Calls end by their own limit, which has a better error text.
    const timeoutMs = server.timeoutMs + 5000;
    if (new URL(url).href !== endpoint) return fetchDocument(fetch, url, { ...init, timeoutMs });
    return watchReply(await fetch(url, { ...init, maxBytes: MAX_REPLY_BYTES, timeoutMs }));
  };
}

/** Limits the values of a reply, and notices the end of a stream that belongs to a call. */
function watchReply(response: Response): Response {
  if (!response.body) return response;
  const isStream = isEventStream(response.headers, 'content-type');
  const call = currentCall.getStore();
  const limit = new JsonTextLimit(VALUES);
  let canResume = false;
  const body = watchBody(response.body, {
    onChunk: (chunk) => {
      limit.add(chunk);
      canResume ||= isStream && /(^|\n)id:/.test(chunk.toString('latin1'));
      return chunk;
    },
    onEnd: (error) => {
      if (isTooLarge(error)) call?.onTooLarge();
      else if (isStream && !canResume) call?.onStreamEnd();
    },
  });
  return copyResponse(response, body);
}

const isTooLarge = (error: unknown) =>
  error instanceof RangeError || (error instanceof SafeFetchError && error.code === 'too_large');

/** Fetches what is not a reply of the server itself, such as where to sign in: the client parses all addresses in it. */
export async function fetchDocument(
  fetch: FetchUrl,
  url: string | URL,
  init: Parameters<PluginContext['fetch']>[1],
): Promise<Response> {
  const response = await fetch(url, { ...init, maxBytes: MAX_DOCUMENT_BYTES });
  if (!response.body) return response;
  const text = await response.text();
  if (hasLongHosts(text))
    throw new Error('A document of the server has addresses that are too long');
  const { status, statusText, headers } = response;
  return new Response(text, { status, statusText, headers });
}

function hasLongHosts(json: string): boolean {
  let found = false;
  try {
    JSON.parse(json, (_, value) => {
      found ||= typeof value === 'string' && !hasShortHost(value);
    });
    return found;
  } catch (error) {
    // The client reads no addresses in what is not JSON.
    return !(error instanceof SyntaxError);
  }
}

/** The only stream of the old transport carries everything, so its end is the end of the connection. */
function createSseFetch(
  target: FetchTarget & Pick<ClientTarget, 'name'>,
  { onLost }: ClientEvents,
): FetchLike {
  const request = createHttpFetch(target);
  const onEnd = () => onLost(new Error('The event stream ended'));
  let wasOpen = false;
  return async (url, init = {}) => {
    if (!opensStream(init)) {
      const response = await request(url, init);
      // The transport does not report the status in its error.
      const { status } = response;
      if (isClientError(status)) throw Object.assign(new Error(UNKNOWN_SESSION), { status });
      return response;
    }
    // Ends the client's attempts to reconnect, which would open a session that is not initialized.
    if (wasOpen) return new Response(null, { status: 204 });
    const replies = new ReplyStream(target.name);
    const response = await fetchStream(target.fetch, url, { ...init, onEnd, replies });
    wasOpen = response.ok;
    return response;
  };
}

const UNKNOWN_SESSION = 'The server does not know the session that a message was sent to';

/** Connecting waits for the first event of this stream, so it must come soon. */
async function fetchChanges(
  fetch: FetchUrl,
  url: string | URL,
  init: RequestInit,
): Promise<Response> {
  const silent = new AbortController();
  const timer = setTimeout(() => silent.abort(new Error('It sends nothing')), FIRST_EVENT_MS);
  const signal = AbortSignal.any([silent.signal, ...(init.signal ? [init.signal] : [])]);
  const stop = () => clearTimeout(timer);
  try {
    return await fetchStream(fetch, url, { ...init, signal, onData: stop, onEnd: stop });
  } catch (error) {
    stop();
    throw error;
  }
}

interface StreamInit extends RequestInit {
  readonly onData?: () => void;
  readonly onEnd?: () => void;
  /** Of a stream that carries the replies to all requests. */
  readonly replies?: ReplyStream;
}

async function fetchStream(
  fetch: FetchUrl,
  url: string | URL,
  { onData, onEnd = () => undefined, replies, ...init }: StreamInit,
): Promise<Response> {
  const limits = { maxBytes: MAX_STREAM_BYTES, timeoutMs: Number.POSITIVE_INFINITY };
  const response = await fetch(url, { ...init, ...limits });
  if (!response.body || !response.ok) return response;
  const limit = new JsonTextLimit(VALUES);
  let eventBytes = 0;
  const onChunk = (received: Buffer) => {
    onData?.();
    const chunk = replies?.add(received) ?? received;
    limit.add(chunk);
    const end = Math.max(chunk.lastIndexOf('\n\n'), chunk.lastIndexOf('\r\n\r\n'));
    eventBytes = end < 0 ? eventBytes + chunk.length : chunk.length - end;
    if (eventBytes > MAX_EVENT_BYTES) throw new Error('An event of the stream is too large');
    return chunk;
  };
  return copyResponse(response, watchBody(response.body, { onChunk, onEnd }));
}

const copyResponse = (
  { status, statusText, headers }: Response,
  body: ReadableStream<Uint8Array>,
): Response => new Response(body, { status, statusText, headers });

interface BodyWatch {
  /** Returns what is passed on; fails the body by throwing. */
  readonly onChunk: (chunk: Buffer) => Buffer;
  /** The body ended, or failed with an error. */
  readonly onEnd: (error?: unknown) => void;
}

function watchBody(
  body: ReadableStream<Uint8Array>,
  { onChunk, onEnd }: BodyWatch,
): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  const pull = async (controller: ReadableStreamDefaultController<Uint8Array>) => {
    try {
      const { done, value } = await reader.read();
      if (!done) {
        const { buffer, byteOffset, byteLength } = value;
        return controller.enqueue(onChunk(Buffer.from(buffer, byteOffset, byteLength)));
      }
      controller.close();
      onEnd();
    } catch (error) {
      // The error of the call comes first.
      onEnd(error);
      controller.error(error);
      reader.cancel(error).catch(() => undefined);
    }
  };
  return new ReadableStream({ pull, cancel: (reason) => reader.cancel(reason) });
}
