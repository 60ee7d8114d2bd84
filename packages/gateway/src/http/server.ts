import { type IncomingMessage, type RequestListener, type Server, STATUS_CODES } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { HttpServer } from '@sibyl/server-kit/http-server';

/** A UCAN of 8192 characters, a target of the same size, and other headers. */
const MAX_HEADER_BYTES = 32 * 1024;
const MAX_HEADERS = 100;
/** Concurrent connections; further ones are closed at once. */
const MAX_CONNECTIONS = 10_000;
/** Maximum time to receive the request line and headers. */
const MAX_HEADERS_MS = 10_000;
/** How often the server checks for slow requests. */
const CHECK_MS = 1000;
/** How long a connection may be inactive before it is closed, besides the time to answer. */
const IDLE_MS = 60_000;
/** What `Keep-Alive` promises: longer than the idle time of common proxies, so that they close first. */
export const KEEP_ALIVE_SECONDS = 75;
/** For requests that are on their way when the connection is closed. */
const KEEP_ALIVE_BUFFER_MS = 1000;
const LINGER_MS = 1000;

export interface ServerTimes {
  /** Maximum time to receive a request. */
  readonly requestTimeoutMs: number;
  /** Maximum time until the first byte of a response. */
  readonly answerTimeoutMs: number;
}

/** Creates a server with limits on time and memory. */
export function createHttpServer(
  listener: RequestListener,
  { requestTimeoutMs, answerTimeoutMs }: ServerTimes,
): HttpServer {
  const server = new HttpServer(
    {
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: Math.min(MAX_HEADERS_MS, requestTimeoutMs),
      requestTimeout: requestTimeoutMs,
      connectionsCheckingInterval: Math.min(CHECK_MS, requestTimeoutMs),
      // One timeout for the whole connection: another between requests would take two new timers for each of them.
      keepAliveTimeout: 0,
      optimizeEmptyRequests: true,
    },
    listener,
  );
  server.timeout = Math.max(
    KEEP_ALIVE_SECONDS * 1000 + KEEP_ALIVE_BUFFER_MS,
    IDLE_MS + answerTimeoutMs,
  );
  server.maxHeadersCount = MAX_HEADERS;
  server.maxConnections = MAX_CONNECTIONS;
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => {
    if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy();
    socket.end(buildErrorResponse(error.code));
    // Gives the client time to read the response.
    setTimeout(() => socket.destroy(), LINGER_MS).unref();
  });
  return server;
}

/** Resolves to the URL once the server listens. */
export async function listen(server: HttpServer, port: number, host: string): Promise<string> {
  await server.start({ port, host });
  const { address, port: actual, family } = server.address() as AddressInfo;
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${actual}`;
}

const ERRORS: Readonly<Record<string, readonly [number, string]>> = {
  HPE_HEADER_OVERFLOW: [431, `the URL and headers have more than ${MAX_HEADER_BYTES} bytes`],
  HPE_INVALID_URL: [400, 'the URL has characters that must be percent-encoded'],
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'the request took too long to arrive'],
};

function buildErrorResponse(code = ''): string {
  const [status, message] = ERRORS[code] ?? [400, 'the request is not HTTP'];
  const body = JSON.stringify({ code: 3, message, details: [] });
  return [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Connection: close',
    '',
    body,
  ].join('\r\n');
}

const CLOSING_MS = 5000;

/** Returns a function that closes a server and lets running responses finish, up to a limit. */
export function createCloser(server: Server): () => Promise<void> {
  // Node does not count a connection without any request as idle.
  const unused = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    unused.add(socket);
    socket.once('close', () => unused.delete(socket));
  });
  server.on('request', ({ socket }: IncomingMessage) => unused.delete(socket));
  return async () => {
    if (!server.listening) return;
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    for (const socket of unused) socket.destroy();
    server.closeIdleConnections();
    const limit = setTimeout(() => server.closeAllConnections(), CLOSING_MS);
    await closed;
    clearTimeout(limit);
  };
}
