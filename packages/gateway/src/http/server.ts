import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  STATUS_CODES,
} from 'node:http';
import type { AddressInfo, Socket } from 'node:net';

/** A UCAN of 8192 characters, a target as long, and room for the rest. */
const MAX_HEADER_BYTES = 32 * 1024;
const MAX_HEADERS = 100;
/** Connections at a time; further ones are closed at once. */
const MAX_CONNECTIONS = 10_000;
/** The longest a client may take for the address and headers. */
const MAX_HEADERS_MS = 10_000;
/** How often slow requests are looked for. */
const CHECK_MS = 1000;
/** How long a client may take nothing of its answer, and send nothing, before it is dropped. */
const IDLE_MS = 60_000;
/** Connections that may wait to be accepted; the system may allow fewer. */
const BACKLOG = 4096;
const LINGER_MS = 1000;

export interface ServerTimes {
  /** The longest a client may take to send a request. */
  readonly requestTimeoutMs: number;
  /** The longest an answer may take before its first byte. */
  readonly answerTimeoutMs: number;
}

/** A server that gives nobody unlimited time or space. */
export function createHttpServer(
  listener: RequestListener,
  { requestTimeoutMs, answerTimeoutMs }: ServerTimes,
): Server {
  const server = createServer(
    {
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: Math.min(MAX_HEADERS_MS, requestTimeoutMs),
      requestTimeout: requestTimeoutMs,
      connectionsCheckingInterval: Math.min(CHECK_MS, requestTimeoutMs),
      // Longer than the idle time of common proxies, so that they close first.
      keepAliveTimeout: 75_000,
    },
    listener,
  );
  server.timeout = IDLE_MS + answerTimeoutMs;
  server.maxHeadersCount = MAX_HEADERS;
  server.maxConnections = MAX_CONNECTIONS;
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => {
    if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy();
    socket.end(buildErrorResponse(error.code));
    // Whoever keeps the other half open has had time to read why.
    setTimeout(() => socket.destroy(), LINGER_MS).unref();
  });
  return server;
}

/** Resolves to the URL once the server listens. */
export async function listen(server: Server, port: number, host: string): Promise<string> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen({ port, host, backlog: BACKLOG }, () => {
      server.off('error', reject);
      resolve();
    });
  });
  const { address, port: actual, family } = server.address() as AddressInfo;
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${actual}`;
}

const ERRORS: Readonly<Record<string, readonly [number, string]>> = {
  HPE_HEADER_OVERFLOW: [431, `the address and headers have more than ${MAX_HEADER_BYTES} bytes`],
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

/** Makes the function that closes a server: answers under way are still sent, for a while. */
export function createCloser(server: Server): () => Promise<void> {
  // Node takes a connection that has not asked for anything yet for a busy one.
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
