import type { IncomingMessage, ServerResponse } from 'node:http';
import { GrpcCode } from '@sibyl/grpc-client';
import { DocsPage, readForwardedAddress, toAddressKey } from '@sibyl/server-kit';
import { type Caller, getMemoryKey } from '../auth/gate.js';
import { findRedirect } from '../binding/go-url.js';
import type { Config } from '../config/config.js';
import { badRequest, QueryError, toQueryError } from '../query/query-error.js';
import { toMetadataHeader } from '../query/query-parser.js';
import { serveBatch } from './batch.js';
import { ChainQueries } from './chain-queries.js';
import type { GatewayDeps } from './gateway-deps.js';
import { ownRoutes } from './own-routes.js';
import { RequestContext, sendError } from './request-context.js';

/** No route has longer targets; the limit of a batch applies to each query. */
const MAX_TARGET_CHARACTERS = 8192;

const BATCH = '/batch';
const DOCS = '/docs';

/** Handles every HTTP request. */
export class Handler {
  private readonly cors: Cors;
  private readonly chain: ChainQueries;
  private readonly docs = new DocsPage({
    title: 'Chain queries',
    docExpansion: 'none',
  });
  private readonly callers = new WeakMap<IncomingMessage['socket'], Caller>();

  constructor(private readonly deps: GatewayDeps) {
    this.cors = new Cors(deps.config);
    this.chain = new ChainQueries(deps);
  }

  readonly handle = (request: IncomingMessage, response: ServerResponse): void => {
    const context = new RequestContext(request, response);
    try {
      const pending = this.respond(context);
      if (pending instanceof Promise) void this.finish(context, pending);
      else this.record(context);
    } catch (error) {
      this.refuse(context, error);
    }
  };

  private async finish(context: RequestContext, pending: Promise<void>): Promise<void> {
    try {
      await pending;
      this.record(context);
    } catch (error) {
      this.refuse(context, error);
    }
  }

  private respond(context: RequestContext): void | Promise<void> {
    this.cors.allow(context);
    const { host: hosts = [] } = context.request.headersDistinct;
    // A proxy may have read another one than this server.
    if (hosts.length > 1) throw badRequest('the request has several Host headers');
    if ((context.request.url?.length ?? 0) > MAX_TARGET_CHARACTERS) throw tooLong();
    if (this.cors.answerPreflight(context)) return;
    const { path, method } = context;
    if (method === 'OPTIONS' && path === '*') return this.describeServer(context);
    const redirect = this.deps.config.compat && findRedirect(path, context.search);
    if (redirect) return context.send(301, { Location: redirect, 'Content-Length': 0 });
    const allowed = ownMethods(path);
    if (allowed && !allowed.includes(method)) return refuseMethod(context, allowed);
    if (isOpen(path)) return this.serveOpen(context);
    const caller = this.admit(context);
    return caller instanceof Promise
      ? caller.then((admitted) => this.serveGated(context, admitted))
      : this.serveGated(context, caller);
  }

  /** `OPTIONS *` is about the server; a node answers it without a body. */
  private describeServer(context: RequestContext): void {
    context.subject = 'OPTIONS *';
    if (this.deps.config.compat) context.send(200, { 'Content-Length': 0 });
    else context.send(204, { Allow: METHODS });
  }

  private async serveOpen(context: RequestContext): Promise<void> {
    if (ownRoutes.has(context.path)) return this.serveOwn(context);
    context.subject = DOCS;
    const file = await this.docs.find(context.path);
    if (!file) throw new QueryError(GrpcCode.notFound, 'page not found');
    context.send(200, file.headers, file.body);
  }

  private serveGated(context: RequestContext, caller: Caller): void | Promise<void> {
    const { path, response } = context;
    // The client may have disconnected during authentication.
    if (response.destroyed) return;
    context.callerKey = getMemoryKey(caller);
    if (ownRoutes.has(path)) return this.serveOwn(context);
    if (path !== BATCH) return this.chain.serve(context, caller);
    context.subject = BATCH;
    return serveBatch(context, caller, this.deps);
  }

  private serveOwn(context: RequestContext): void | Promise<void> {
    context.subject = context.path;
    return ownRoutes.get(context.path)?.serve(context, this.deps);
  }

  private admit({ request }: RequestContext): Caller | Promise<Caller> {
    const { admission, config } = this.deps;
    const { auth, proxies } = config.gating;
    // Without credentials and proxies, all requests of a connection have the same caller.
    const isFixed = auth === 'none' && proxies === 0;
    const known = isFixed ? this.callers.get(request.socket) : undefined;
    if (known) return known;
    const address = readAddressKey(request, proxies);
    const caller = admission.admit({ headers: request.headers, address });
    if (isFixed && !(caller instanceof Promise)) this.callers.set(request.socket, caller);
    return caller;
  }

  private refuse(context: RequestContext, error: unknown): void {
    const { pool, config, logger } = this.deps;
    const { response, height } = context;
    const queryError = toQueryError(error, { pool, height, compat: config.compat });
    const requestId = context.identify();
    if (!queryError)
      logger.error({ requestId, error: String((error as Error)?.stack) }, 'internal error');
    // After the status was sent, the only option is to disconnect.
    if (response.headersSent) response.destroy();
    else sendError(context, queryError ?? new QueryError(GrpcCode.internal, 'internal error'));
    this.record(context);
  }

  private record({ response, request, subject, startedAt, requestId }: RequestContext): void {
    const { metrics, logger } = this.deps;
    const ms = performance.now() - startedAt;
    const { statusCode: status } = response;
    metrics.countRequest(subject, status, ms / 1000);
    const { method } = request;
    const line = { requestId, method, subject, status, ms: Math.round(ms * 10) / 10 };
    if (status >= 500 && !ownRoutes.has(subject)) logger.warn(line, 'request');
    else logger.debug(line, 'request');
  }
}

/** Whether the path needs no authentication. */
function isOpen(path: string): boolean {
  return ownRoutes.get(path)?.isPublic ?? isDocs(path);
}

const isDocs = (path: string) => path === DOCS || path.startsWith(`${DOCS}/`);

/** The methods of a path of the gateway itself; public, since the docs are. */
function ownMethods(path: string): readonly string[] | undefined {
  if (path === BATCH) return ['POST'];
  return ownRoutes.has(path) || isDocs(path) ? ['GET', 'HEAD'] : undefined;
}

function refuseMethod(context: RequestContext, allowed: readonly string[]): void {
  const Allow = [...allowed, 'OPTIONS'].join(', ');
  if (context.method === 'OPTIONS') {
    context.send(204, { Allow });
    return;
  }
  const text = `${context.method} is not allowed here; allowed are ${Allow}`;
  throw new QueryError(GrpcCode.unimplemented, text, { status: 405, headers: { Allow } });
}

function tooLong(): QueryError {
  const text = `the URL is longer than ${MAX_TARGET_CHARACTERS} characters`;
  return new QueryError(GrpcCode.invalidArgument, text, { status: 414 });
}

/**
 * The rate limit key for the sender of a request: of the forwarded addresses, the one
 * that the outermost trusted proxy saw. An IPv6 address counts as its /64.
 */
export function readAddressKey({ socket, headers }: IncomingMessage, proxies: number): string {
  const peer = socket.remoteAddress;
  if (proxies === 0) return toAddressKey(peer);
  const forwarded = String(headers['x-forwarded-for'] ?? '')
    .split(',')
    .map((address) => address.trim())
    .filter(Boolean);
  const claimed = forwarded.at(-proxies) ?? forwarded[0] ?? '';
  return toAddressKey(readForwardedAddress(claimed) ?? peer);
}

const ALLOW_ORIGIN = 'Access-Control-Allow-Origin';
const METHODS = 'GET, HEAD, POST, OPTIONS';
const REQUEST_HEADERS = [
  'Authorization',
  'Content-Type',
  'Grpc-Metadata-X-Cosmos-Block-Height',
  'Grpc-Timeout',
  'If-None-Match',
  'Last-Event-ID',
  'X-API-Key',
  'X-Auth-Type',
  'X-Cosmos-Block-Height',
  'X-Min-Block-Height',
  'X-Request-Id',
];
const EXPOSED_HEADERS = [
  'Deprecation',
  'ETag',
  'Grpc-Metadata-X-Cosmos-Block-Height',
  'Link',
  'Retry-After',
  'X-Block-Height',
  'X-Request-Id',
].join(', ');
const PREFLIGHT_SECONDS = '600';

/** CORS for the configured origins; without any, no headers are sent. */
export class Cors {
  private readonly origins: ReadonlySet<string>;
  private readonly requestHeaders: string;

  constructor({ corsOrigins, nodes }: Pick<Config, 'corsOrigins' | 'nodes'>) {
    this.origins = new Set(corsOrigins);
    const forwarded = nodes.forwardedMetadata.map(toMetadataHeader);
    this.requestHeaders = [...REQUEST_HEADERS, ...forwarded].join(', ');
  }

  /** Sets the headers for the origin of the request. */
  allow({ request, headers }: RequestContext): void {
    if (this.origins.size === 0) return;
    const isForAll = this.origins.has('*');
    if (!isForAll) headers.Vary = 'Origin';
    const { origin } = request.headers;
    if (origin === undefined || !(isForAll || this.origins.has(origin))) return;
    headers[ALLOW_ORIGIN] = isForAll ? '*' : origin;
    headers['Access-Control-Expose-Headers'] = EXPOSED_HEADERS;
  }

  /** Answers a preflight request; false for other requests. */
  answerPreflight(context: RequestContext): boolean {
    const { request, method, headers } = context;
    const isPreflight = method === 'OPTIONS' && 'access-control-request-method' in request.headers;
    if (!isPreflight || !(ALLOW_ORIGIN in headers)) return false;
    context.send(204, {
      'Access-Control-Allow-Methods': METHODS,
      'Access-Control-Allow-Headers': this.requestHeaders,
      'Access-Control-Max-Age': PREFLIGHT_SECONDS,
    });
    return true;
  }
}
