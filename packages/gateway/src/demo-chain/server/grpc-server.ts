import {
  createSecureServer,
  createServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import type { AddressInfo } from 'node:net';
import { GrpcCode, GrpcError } from '../../upstream/grpc-error.js';
import { answerCall } from './answer-call.js';
import { answerStream, type MessageAnswers } from './answer-stream.js';
import type { AnswerQuery } from './query.js';
import { refuse } from './status-trailers.js';

export interface GrpcServerOptions {
  readonly answer: AnswerQuery;
  /** Bidirectional methods by name; each message is answered by one. */
  readonly streams?: Readonly<Record<string, MessageAnswers>>;
  /** Unset: plaintext. */
  readonly tls?: { readonly key: string; readonly cert: string };
  /** Unset: any free one. */
  readonly port?: number;
}

/** A running gRPC server on this machine. */
export interface GrpcServer {
  /** `grpc://` or `grpcs://`, host and port. */
  readonly url: string;
  readonly port: number;
  /** Tells every client to go elsewhere; calls under way are still answered. */
  goAway(): void;
  /** Cuts every connection in the middle of whatever it does. */
  cutConnections(): void;
  close(): Promise<void>;
}

/** Serves unary queries, and streams that answer message by message, over HTTP/2. */
export async function startGrpcServer(options: GrpcServerOptions): Promise<GrpcServer> {
  const { tls, streams = {}, answer } = options;
  const server = tls ? createSecureServer(tls) : createServer();
  const sessions = trackSessions(server);
  server.on('stream', (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
    // A client that has gone needs no answer.
    stream.on('error', () => {});
    const method = methodOf(headers);
    if (!method) return refuse(stream, new GrpcError(GrpcCode.internal, 'no gRPC request'));
    const messageAnswers = streams[method];
    if (messageAnswers) return answerStream(stream, messageAnswers);
    answerCall(stream, { method, headers, answer });
  });
  await listen(server, options.port ?? 0);
  const { port } = server.address() as AddressInfo;
  return {
    url: `${tls ? 'grpcs' : 'grpc'}://127.0.0.1:${port}`,
    port,
    goAway() {
      for (const session of sessions) session.close();
    },
    cutConnections() {
      for (const session of sessions) session.destroy();
    },
    close: () => close(server, sessions),
  };
}

/** The method of a request, if it is one of gRPC. */
function methodOf(headers: IncomingHttpHeaders): string | undefined {
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
