import { connect as connectPlain, isIP, type Socket } from 'node:net';
import { connect as connectSecure } from 'node:tls';

/** The address of an HTTP/2 server. */
export interface PeerAddress {
  readonly scheme: 'http' | 'https';
  /** Only host and port are used. */
  readonly url: URL;
  /** Trusted certificates, in PEM; default: those that ship with Node. */
  readonly ca?: readonly string[] | undefined;
}

/** Header fields by lower-case name; repeated fields are joined by commas. */
export type HeaderFields = ReadonlyMap<string, string>;

/** Alternating names and values. `fixed` is the same array in every request to a method, so its encoding is cached. */
export interface RequestHeaders {
  readonly fixed: readonly string[];
  readonly variable: readonly string[];
}

/** Opens a connection; the session reports to the listener and never throws. */
export type OpenSession = (peer: PeerAddress, listener: SessionListener) => Session;

/** The client's side of an HTTP/2 connection: many requests at a time on one socket. */
export interface Session {
  /** Whether a new request can start. */
  readonly isOpen: boolean;
  request(headers: RequestHeaders, listener: StreamListener): Stream;
  ping(onAck: () => void): void;
  destroy(cause?: Error): void;
}

export interface SessionListener {
  /** The peer speaks HTTP/2: requests can start. */
  onReady(): void;
  /** No new request can start here; running ones continue. */
  onRetired(): void;
  onClosed(cause: Error | undefined): void;
}

/** The sending side of one request. */
export interface Stream {
  write(bytes: Buffer): void;
  /** Writes the last bytes of the body. */
  end(bytes: Buffer): void;
  /** Resets the stream; its listener receives no further event. */
  cancel(): void;
}

/** Receives the events of one stream. */
export interface StreamListener {
  /** Headers first, trailers last. */
  onHeaders(fields: HeaderFields): void;
  /** The bytes are valid only during the call. */
  onData(bytes: Buffer): void;
  /** The response is complete. */
  onEnd(): void;
  /** The peer reset the stream, or its connection closed. */
  onError(error: StreamError): void;
}

/** Why a stream ended early: the code of a reset, or the cause of a closed connection. */
export interface StreamError {
  readonly code?: number | undefined;
  readonly cause?: Error | undefined;
}

/** Large enough for a large reply without a round trip for more. */
export const STREAM_WINDOW = 4 * 1024 * 1024;
/** Large enough for large replies on all streams together. */
export const CONNECTION_WINDOW = 32 * 1024 * 1024;

export const notHttp2 = () => new Error('the server does not speak HTTP/2');

const READ_BYTES = 64 * 1024;
const TCP_KEEP_ALIVE_MS = 30_000;
const DEFAULT_PORTS = { http: 80, https: 443 } as const;

/** Connects to a server. With `onData`, all reads reuse the same buffer, and the socket emits no data. */
export function openSocket(
  { scheme, url, ca }: PeerAddress,
  onData?: (bytes: Buffer) => void,
): Socket {
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const target = {
    host,
    port: url.port === '' ? DEFAULT_PORTS[scheme] : Number(url.port),
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: TCP_KEEP_ALIVE_MS,
    ...(onData && { onread: readInto(Buffer.allocUnsafe(READ_BYTES), onData) }),
  };
  if (scheme === 'http') return connectPlain(target);
  const socket = connectSecure({
    ...target,
    ALPNProtocols: ['h2'],
    ...(isIP(host) === 0 && { servername: host }),
    ...(ca && { ca: [...ca] }),
  });
  socket.once('secureConnect', () => {
    if (socket.alpnProtocol !== 'h2') socket.destroy(notHttp2());
  });
  return socket;
}

function readInto(buffer: Buffer, onData: (bytes: Buffer) => void) {
  return {
    buffer,
    callback: (count: number) => {
      onData(buffer.subarray(0, count));
      return true;
    },
  };
}
