import {
  createSecureServer,
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import type { AddressInfo } from 'node:net';
import { encodeMessage, GrpcCode, GrpcError, MessageReader } from '@sibyl/grpc-client';

export interface GrpcServerOptions {
  readonly answer: QueryHandler;
  /** Bidirectional methods by name; each message is answered by one. */
  readonly streams?: Readonly<Record<string, MessageHandler>>;
  /** Whether a stream ends after its first answer, as those of some nodes do. */
  readonly endsStreams?: boolean | undefined;
  /** Unset: plaintext. */
  readonly tls?: { readonly key: string; readonly cert: string };
  /** Default: any free port. */
  readonly port?: number;
}

/** A running gRPC server on this machine. */
export interface GrpcServer {
  /** `grpc://` or `grpcs://`, host and port. */
  readonly url: string;
  readonly port: number;
  /** Sends GOAWAY to all clients; running calls finish. */
  goAway(): void;
  /** Drops all connections. */
  dropConnections(): void;
  /** Lets the process end while the server listens. */
  unref(): void;
  close(): Promise<void>;
}

/** Serves unary queries, and streams that answer message by message, over HTTP/2. */
export async function startGrpcServer(options: GrpcServerOptions): Promise<GrpcServer> {
  const { tls, streams = {}, answer } = options;
  const server = tls ? createSecureServer(tls) : createServer();
  const sessions = trackSessions(server);
  server.on('stream', (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
    // A client that has disconnected needs no answer.
    stream.on('error', () => {});
    const method = readMethod(headers);
    if (!method) return refuse(stream, new GrpcError(GrpcCode.internal, 'no gRPC request'));
    const messageHandler = streams[method];
    if (messageHandler) return handleStream(stream, messageHandler, options.endsStreams);
    handleCall(stream, { method, headers, answer });
  });
  await listen(server, options.port ?? 0);
  const { port } = server.address() as AddressInfo;
  return {
    url: `${tls ? 'grpcs' : 'grpc'}://127.0.0.1:${port}`,
    port,
    goAway() {
      for (const session of sessions) session.close();
    },
    dropConnections() {
      for (const session of sessions) session.destroy();
    },
    unref: () => void server.unref(),
    close: () => close(server, sessions),
  };
}

/** The method of a request, if it is a gRPC request. */
function readMethod(headers: IncomingHttpHeaders): string | undefined {
  const isGrpc = headers['content-type']?.startsWith('application/grpc');
  return isGrpc && headers[':method'] === 'POST' ? headers[':path']?.slice(1) : undefined;
}

function trackSessions(server: Http2Server): Set<ServerHttp2Session> {
  const sessions = new Set<ServerHttp2Session>();
  server.on('session', (session) => {
    sessions.add(session);
    session.on('error', () => {});
    session.once('close', () => sessions.delete(session));
  });
  return sessions;
}

function listen(server: Http2Server, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', () => {
      server.off('error', reject);
      resolve();
    });
  });
}

function close(server: Http2Server, sessions: ReadonlySet<ServerHttp2Session>): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    for (const session of sessions) session.destroy();
  });
}

const MAX_REQUEST_BYTES = 4 * 1024 * 1024;

const HEIGHT_METADATA = 'x-cosmos-block-height';

interface Call {
  readonly method: string;
  readonly headers: IncomingHttpHeaders;
  readonly answer: QueryHandler;
}

/** Answers a unary call once its request has arrived. */
export function handleCall(stream: ServerHttp2Stream, call: Call): void {
  const reader = new MessageReader(MAX_REQUEST_BYTES);
  const requests: Buffer[] = [];
  stream.on('data', (chunk: Buffer) => {
    try {
      requests.push(...reader.read(chunk));
    } catch (error) {
      refuse(stream, asGrpcError(error));
    }
  });
  stream.once('end', () => {
    void runCall(call, requests).then((answer) => send(stream, answer));
  });
}

async function runCall(call: Call, requests: readonly Buffer[]): Promise<QueryResult> {
  try {
    const [request] = requests;
    if (!request || requests.length > 1) {
      throw new GrpcError(
        GrpcCode.internal,
        `a unary call has one message, not ${requests.length}`,
      );
    }
    return await call.answer({ method: call.method, request, height: readHeight(call.headers) });
  } catch (error) {
    return { error: asGrpcError(error) };
  }
}

function readHeight(headers: IncomingHttpHeaders): number | undefined {
  const text = headers[HEIGHT_METADATA];
  if (text === undefined) return undefined;
  if (/^\d{1,15}$/.test(String(text))) return Number(text);
  throw new GrpcError(GrpcCode.invalidArgument, `invalid height header "${text}": invalid request`);
}

/** Like other servers, sends the height of a failed call in headers before the trailers. */
function send(stream: ServerHttp2Stream, answer: QueryResult): void {
  if (stream.destroyed || stream.headersSent) return;
  const { height } = answer;
  const error = 'error' in answer ? answer.error : undefined;
  if (error && height === undefined) {
    refuse(stream, error);
    return;
  }
  const headers: OutgoingHttpHeaders = { ':status': 200, ...CONTENT_TYPE };
  if (height !== undefined) headers[HEIGHT_METADATA] = String(height);
  stream.respond(headers, { waitForTrailers: true });
  stream.once('wantTrailers', () =>
    stream.sendTrailers(error ? buildTrailers(error) : OK_TRAILERS),
  );
  if ('message' in answer) stream.end(encodeMessage(answer.message));
  else stream.end();
}

function asGrpcError(error: unknown): GrpcError {
  return error instanceof GrpcError ? error : new GrpcError(GrpcCode.unknown, String(error));
}

const MAX_STREAM_MESSAGE_BYTES = 64 * 1024;

/** The answer to each message of a stream. */
export type MessageHandler = (message: Uint8Array) => Uint8Array;

/** QueryService the messages of a stream one by one, until the client has no more. */
export function handleStream(
  stream: ServerHttp2Stream,
  answerTo: MessageHandler,
  endsAfterFirst = false,
): void {
  const reader = new MessageReader(MAX_STREAM_MESSAGE_BYTES);
  stream.respond({ ':status': 200, ...CONTENT_TYPE }, { waitForTrailers: true });
  stream.once('wantTrailers', () => stream.sendTrailers(OK_TRAILERS));
  stream.on('data', (chunk: Buffer) => {
    try {
      for (const message of reader.read(chunk)) {
        if (stream.writableEnded) return;
        stream.write(encodeMessage(answerTo(message)));
        if (endsAfterFirst) stream.end();
      }
    } catch {
      // The rest of the stream cannot be read after a broken message.
      stream.close();
    }
  });
  stream.once('end', () => stream.end());
}

export const CONTENT_TYPE = { 'content-type': 'application/grpc' };

/** The trailers of a successful call. */
export const OK_TRAILERS: OutgoingHttpHeaders = { 'grpc-status': String(GrpcCode.ok) };

/** The trailers of a failed call. */
export function buildTrailers({ code, message }: GrpcError): OutgoingHttpHeaders {
  return { 'grpc-status': String(code), 'grpc-message': percentEncode(message) };
}

/** Ends a call before its answer has started. */
export function refuse(stream: ServerHttp2Stream, error: GrpcError): void {
  if (stream.destroyed) return;
  stream.respond({ ':status': 200, ...CONTENT_TYPE, ...buildTrailers(error) }, { endStream: true });
}

/** Header values are printable ASCII; gRPC percent-encodes all other bytes. */
function percentEncode(text: string): string {
  return encodeURI(text.toWellFormed()).replace(/%(20|22|3C|3E|5B|5C|5D|5E|60|7B|7C|7D)/g, (code) =>
    decodeURIComponent(code),
  );
}

/** A query as it reaches a node. */
export interface Query {
  /** Such as `ixo.entity.v1beta1.Query/Entity`. */
  readonly method: string;
  /** The request message, still encoded. */
  readonly request: Uint8Array;
  /** Default: the latest block. */
  readonly height?: number | undefined;
}

/** The result of a query and its block height. */
export type QueryResult = { readonly height?: number | undefined } & (
  | { readonly message: Uint8Array }
  | { readonly error: GrpcError }
);

/** Answers queries; may also throw a `GrpcError`. */
export type QueryHandler = (query: Query) => QueryResult | Promise<QueryResult>;
