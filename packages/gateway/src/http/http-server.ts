import { createServer, type RequestListener, type Server, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';

/** A UCAN of 8192 characters, a target as long, and room for the rest. */
const MAX_HEADER_BYTES = 32 * 1024;
const MAX_HEADERS = 100;
const LINGER_MS = 1000;

/** A server that gives nobody unlimited time or space. */
export function createHttpServer(listener: RequestListener, requestTimeoutMs: number): Server {
  const server = createServer(
    {
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: requestTimeoutMs,
      requestTimeout: requestTimeoutMs,
      connectionsCheckingInterval: Math.min(1000, requestTimeoutMs),
      // Longer than the idle time of common proxies, so that they close first.
      keepAliveTimeout: 75_000,
    },
    listener,
  );
  server.maxHeadersCount = MAX_HEADERS;
  server.on('clientError', (fault: NodeJS.ErrnoException, socket: Socket) => {
    if (fault.code === 'ECONNRESET' || !socket.writable) return void socket.destroy();
    socket.end(parseFaultAnswer(fault.code));
    // Whoever keeps the other half open has had time to read why.
    setTimeout(() => socket.destroy(), LINGER_MS).unref();
  });
  return server;
}

const FAULTS: Readonly<Record<string, readonly [number, string]>> = {
  HPE_HEADER_OVERFLOW: [431, `the address and headers have more than ${MAX_HEADER_BYTES} bytes`],
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'the request took too long to arrive'],
};

function parseFaultAnswer(code = ''): string {
  const [status, message] = FAULTS[code] ?? [400, 'the request is not HTTP'];
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
