import { randomUUID } from 'node:crypto';
import { type IncomingMessage, type Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { ExpressAdapter } from '@nestjs/platform-express';
import { RouteReply } from '@sibyl/plugin-kit/surface';
import { type ErrorCode, IdempotencyKey, OracleError, RequestId } from '@sibyl/protocol';
import { HttpServer } from '@sibyl/server-kit/http-server';
import type { Express, NextFunction, Request, Response } from 'express';
import type { Logger } from 'pino';
import { readAccessKey, readCredentials } from '../auth/authenticator.js';
import type { RateLimits } from '../auth/rate-limits.js';
import type { Metrics } from '../observability/metrics.js';
import {
  ActiveSpan,
  readTraceparent,
  runInScope,
  Scope,
  type SpanExporter,
} from '../observability/spans.js';
import { buildRawResponse, sendRouteReply } from './replies.js';
import type { OracleRequest } from './ucan-guard.js';

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

/** Without TRUST_PROXY, all callers behind a proxy share its address, and so the limits of one address. */
export function warnAboutProxy(logger: Logger) {
  let isWarned = false;
  return ({ headers }: Request, _response: Response, next: NextFunction): void => {
    if (!isWarned && headers['x-forwarded-for'] !== undefined) {
      isWarned = true;
      logger.warn(
        'a proxy in front of this host sends X-Forwarded-For, which is not trusted: all callers share the limits of its address; set TRUST_PROXY to it, or to loopback if it is on this machine',
      );
    }
    next();
  };
}

/** Logs one line per request, without headers, body and query, which may contain tokens. */
export function accessLog(logger: Logger, metrics: Metrics) {
  return (request: OracleRequest, response: Response, next: NextFunction): void => {
    const startedAt = performance.now();
    response.once('close', () => {
      const ms = performance.now() - startedAt;
      const line = {
        requestId: request.requestId,
        did: request.caller?.did,
        method: request.method,
        route: readRoute(request),
        status: response.statusCode,
        ms: Math.round(ms * 10) / 10,
      };
      const { method, route, status } = line;
      metrics.count('sibyl_http_requests_total', { method, route, status: String(status) });
      metrics.observe('sibyl_http_request_seconds', { method, route }, ms / 1000);
      if (!response.writableFinished) logger.info(line, 'request aborted');
      else if (isHealth(request)) logger.debug(line, 'request');
      else logger.info(line, 'request');
    });
    next();
  };
}

/** Runs the rest of a request in its own scope, and as a span if spans are exported. */
export function requestScope(exporter: SpanExporter | undefined) {
  return (request: OracleRequest, response: Response, next: NextFunction): void => {
    const traceparent = readTraceparent(request.header('traceparent'));
    const scope = new Scope({ requestId: request.requestId, traceparent, exporter });
    if (!exporter || isHealth(request)) return void runInScope(scope, next);
    const { method } = request;
    const span = new ActiveSpan(scope, { kind: 'request', name: method, facts: { method } });
    response.once('close', () => {
      const { statusCode: status } = response;
      const error = status >= 500 ? String(status) : undefined;
      const facts = { route: readRoute(request), status, userId: request.caller?.did };
      span.end({ error, facts });
    });
    span.run(next);
  };
}

function readRoute(request: OracleRequest): string {
  const pattern: unknown = request.route?.path;
  return typeof pattern === 'string' ? pattern : 'unmatched';
}

/** Gives every request its correlation id: that of the caller if it is well-formed. */
export function requestId(request: OracleRequest, response: Response, next: NextFunction): void {
  const { 'x-request-id': given } = request.headers;
  const id = (given && RequestId.safeParse(given).data) || randomUUID();
  request.requestId = id;
  response.setHeader('X-Request-Id', id);
  next();
}

/** Uses the request id of a body unless the request has one in its header. */
export function adoptRequestId(request: OracleRequest, response: Response, id: string): void {
  if (request.header('x-request-id')) return;
  request.requestId = id;
  response.setHeader('X-Request-Id', id);
}

/** The key with which a client can repeat a request; throws if it is malformed. */
export function readIdempotencyKey(request: OracleRequest): string | undefined {
  const header = request.header('idempotency-key');
  if (header === undefined) return undefined;
  const { data, error } = IdempotencyKey.safeParse(header);
  if (!error) return data;
  throw new OracleError('validation_failed', {
    message: error.issues.map(({ message }) => `idempotency-key: ${message}`),
  });
}

/** Refuses a request whose host depends on who reads it: a proxy may have read another one than this server. */
export function assertOneHost(
  { headersDistinct: { host: hosts = [] } }: Request,
  _: Response,
  next: NextFunction,
): void {
  if (hosts.length > 1)
    throw new OracleError('bad_request', {
      message: 'The request has several Host headers; send one',
    });
  next();
}

/** The page uses none of them. */
const UNUSED_FEATURES =
  'accelerometer=(), bluetooth=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), hid=(), magnetometer=(), microphone=(), midi=(), payment=(), serial=(), usb=()';

const API_POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'";

/** Sets security headers; a route may override them. */
export function securityHeaders(request: Request, response: Response, next: NextFunction): void {
  response.setHeader('Content-Security-Policy', API_POLICY);
  response.setHeader('X-Content-Type-Options', 'nosniff');
  response.setHeader('X-Frame-Options', 'DENY');
  response.setHeader('Referrer-Policy', 'no-referrer');
  response.setHeader('Cross-Origin-Opener-Policy', 'same-origin');
  // Pages of other origins use CORS, to which this does not apply.
  response.setHeader('Cross-Origin-Resource-Policy', 'same-origin');
  response.setHeader('Permissions-Policy', UNUSED_FEATURES);
  if (!isDocs(request)) response.setHeader('Cache-Control', 'no-store');
  next();
}

/** Whether a request is for the API documentation; case-insensitive, as the router. */
function isDocs({ path }: Pick<Request, 'path'>): boolean {
  return /^\/docs(\/|-json\/?$|$)/i.test(path);
}

/** Whether a request is a health check, which has no rate limit and is logged at debug level. */
function isHealth({ path }: Pick<Request, 'path'>): boolean {
  return path === '/health' || path === '/health/ready';
}

/** Limits the unauthenticated requests of each address; health checks are exempt. */
export function anonymousLimit(limits: RateLimits) {
  return (request: OracleRequest, response: Response, next: NextFunction): void => {
    const isExempt = isHealth(request);
    const { invocation, delegation } = readCredentials(request.headers);
    const sent = invocation ?? delegation ?? readAccessKey(request.headers);
    // The guard counts requests with credentials: a valid caller must not suffer from others at its address. The
    // error filter counts requests that fail before they reach the guard.
    request.isCounted = isExempt || isDocs(request) || sent === undefined;
    if (request.isCounted && !isExempt) limits.takeAnonymous(request.ip, response);
    next();
  };
}

/** The part of a layer of Express's router that this file reads. */
interface Layer {
  readonly route?: { readonly path: string; readonly methods: Readonly<Record<string, boolean>> };
  match(path: string): boolean;
}

/** All routes of the host and of plugins, as often as they are defined. */
export function listRoutes({ router }: Express) {
  const layers = router.stack as unknown as readonly Layer[];
  return layers.flatMap(({ route }) =>
    Object.keys(route?.methods ?? {}).map((method) => ({
      method: method.toUpperCase(),
      // A module may have registered a regular expression.
      path: String(route?.path),
    })),
  );
}

/** The methods of the routes of a path, for `Allow`; empty if no route has this path. */
function findAllowedMethods({ app, path }: Request): readonly string[] {
  const layers = app.router.stack as unknown as readonly Layer[];
  const matching = layers.flatMap((layer) =>
    layer.route && matches(layer, path) ? layer.route : [],
  );
  // `/messages/abort` is a separate resource, although `/messages/:sessionId` matches it too.
  const literal = matching.filter((route) => !/[:*{]/.test(route.path));
  const found = (literal.length > 0 ? literal : matching)
    .flatMap(({ methods }) => Object.keys(methods))
    .map((method) => method.toUpperCase());
  if (found.length === 0) return [];
  // Express answers HEAD wherever there is a GET; OPTIONS is answered below.
  const implied = found.includes('GET') ? ['HEAD', 'OPTIONS'] : ['OPTIONS'];
  return [...new Set([...found, ...implied])].sort();
}

/** A path with invalid percent-encoding matches no route. */
function matches(layer: Layer, path: string): boolean {
  try {
    return layer.match(path);
  } catch {
    return false;
  }
}

/** Why no route matches: the path is unknown, or has only other methods. */
export function explainUnmatched(request: Request, response: Response): OracleError {
  const allowed = findAllowedMethods(request);
  if (allowed.length === 0 || allowed.includes(request.method)) return new OracleError('not_found');
  response.setHeader('Allow', allowed.join(', '));
  return new OracleError('method_not_allowed', {
    message: `${request.method} is not allowed here; use one of ${allowed.join(', ')}`,
  });
}

/** Answers OPTIONS: preflights of every path, other requests of known paths with their methods. */
export function answerOptions(request: Request, response: Response, next: NextFunction): void {
  if (request.method !== 'OPTIONS') return void next();
  const allowed = findAllowedMethods(request);
  const isPreflight = request.headers['access-control-request-method'] !== undefined;
  if (allowed.length === 0 && !isPreflight) return void next();
  if (allowed.length > 0) response.setHeader('Allow', allowed.join(', '));
  response.status(204).end();
}
