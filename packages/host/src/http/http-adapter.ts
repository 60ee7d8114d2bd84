import { type IncomingMessage, type Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { ExpressAdapter } from '@nestjs/platform-express';
import { RouteReply } from '@sibyl/plugin-kit/surface';
import { type ErrorCode, OracleError } from '@sibyl/protocol';
import { HttpServer } from '@sibyl/server-kit/http-server';
import type { Response } from 'express';
import { buildRawResponse, sendRouteReply } from './responses.js';

/** Two tokens of 8192 characters each, and room for the rest. */
const MAX_HEADER_BYTES = 32 * 1024;

/** Connections open at once, of all clients; each may hold its headers. Further ones are closed. */
const MAX_CONNECTIONS = 20_000;

/** How long a client may take to send its request, in milliseconds. Responses have no time limit. */
export interface RequestTimeouts {
  readonly headers: number;
  /** Headers and body together. */
  readonly request: number;
  /** How often connections are checked: a slow one lives at most this much longer. */
  readonly checkInterval: number;
}

export const REQUEST_TIMEOUTS: RequestTimeouts = {
  headers: 8_000,
  request: 28_000,
  checkInterval: 1_000,
};

const longBodies = new WeakSet<Socket>();

/** Exempts the body of a request from the time limit: its handler has its own. */
export function allowLongBody({ socket }: IncomingMessage): () => void {
  longBodies.add(socket);
  return () => longBodies.delete(socket);
}

/** How streams of plugins are sent. */
export interface StreamOptions {
  /** How long a client may read nothing before it is disconnected. */
  readonly stallMs: number;
  /** Called if a stream fails: it is too late for an error response. */
  readonly onError: (error: unknown) => void;
}

/** Express on a server with stricter limits, which answers parse errors as JSON too. */
export class HttpAdapter extends ExpressAdapter {
  declare protected httpServer: HttpServer;

  constructor(
    private readonly streams: StreamOptions,
    private readonly timeouts = REQUEST_TIMEOUTS,
  ) {
    super();
  }

  override initHttpServer(): void {
    const server = new HttpServer(
      {
        maxHeaderSize: MAX_HEADER_BYTES,
        headersTimeout: this.timeouts.headers,
        requestTimeout: this.timeouts.request,
        connectionsCheckingInterval: this.timeouts.checkInterval,
        // Longer than the idle time of common proxies, so that they close first.
        keepAliveTimeout: 75_000,
        ServerResponse: createResponseClass(this.streams.stallMs),
        // A client that offers another protocol, such as HTTP/2, is answered in this one.
        shouldUpgradeCallback: ({ headers }) => /^websocket$/i.test(headers.upgrade ?? ''),
      },
      this.getInstance(),
    );
    server.maxConnections = MAX_CONNECTIONS;
    answerClientErrors(server);
    // Without this listener, Node itself would reject requests with an unknown `Expect` header.
    server.on('checkExpectation', this.getInstance());
    this.httpServer = server;
  }

  /** Also sends what a route of a plugin returns instead of JSON. */
  override reply(response: Response, body: unknown, statusCode?: number) {
    if (body instanceof RouteReply) return sendRouteReply(response, body, this.streams);
    return super.reply(response, body, statusCode);
  }

  /** With the arguments that Nest passes. */
  override listen(port: string | number, ...rest: unknown[]): Server {
    const callback = rest.find((each) => typeof each === 'function');
    const host = rest.find((each) => typeof each === 'string');
    const server = this.httpServer;
    void server.start({ port: Number(port), host }).then(
      () => callback?.(),
      (error) => server.emit('error', error),
    );
    return server;
  }
}

/** Responses that disconnect a client that does not read their end: its bytes would stay in memory for ever. */
function createResponseClass(stallMs: number): typeof ServerResponse {
  return class<T extends IncomingMessage> extends ServerResponse<T> {
    constructor(...args: ConstructorParameters<typeof ServerResponse<T>>) {
      super(...args);
      this.once('prefinish', () => this.setTimeout(stallMs, () => this.destroy()));
      // The next response on the connection may take longer.
      this.once('finish', () => this.setTimeout(0));
    }
  };
}

/** Answers requests that are malformed or too slow, then closes their connection. */
function answerClientErrors(server: Server): void {
  const responses = new WeakMap<Socket, ServerResponse>();
  const remember = ({ socket }: IncomingMessage, response: ServerResponse) => {
    responses.set(socket, response);
  };
  server.prependListener('request', remember);
  // Requests with an `Expect` header arrive as this event instead.
  server.prependListener('checkExpectation', remember);
  const refuse = (fault: NodeJS.ErrnoException, socket: Socket) => {
    // Otherwise the error would become part of a response that has begun.
    const hasResponse =
      responses.get(socket)?.headersSent && !responses.get(socket)?.writableFinished;
    if (fault.code === 'ECONNRESET' || !socket.writable || hasResponse)
      return void socket.destroy();
    socket.write(buildRawResponse(new OracleError(explainClientError(fault.code))));
    // Does not wait for the client to close its side, which a slow one never does.
    socket.destroySoon();
  };
  server.on('clientError', (fault: NodeJS.ErrnoException, socket: Socket) => {
    if (fault.code !== 'ERR_HTTP_REQUEST_TIMEOUT') return refuse(fault, socket);
    // Node reports a slow request once, and closes nothing itself.
    if (longBodies.has(socket)) return;
    const last = responses.get(socket);
    const answered = last?.req.complete ? last : undefined;
    // If the host itself stood still, the request may wait in the socket: what is there is read before this is called.
    setImmediate(() => {
      const next = responses.get(socket);
      if (next === answered || !next?.req.complete) refuse(fault, socket);
    });
  });
}

function explainClientError(code: string | undefined): ErrorCode {
  switch (code) {
    case 'HPE_HEADER_OVERFLOW':
      return 'headers_too_large';
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return 'request_timeout';
    default:
      return 'bad_request';
  }
}
