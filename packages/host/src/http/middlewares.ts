import { randomUUID } from 'node:crypto';
import { IdempotencyKey, OracleError, RequestId } from '@sibyl/protocol';
import { namesSeveralHosts } from '@sibyl/server-kit/http-server';
import type { Express, NextFunction, Request, Response } from 'express';
import type { Logger } from 'pino';
import { readAccessKey, readCredentials } from '../auth/caller.js';
import type { RateLimits } from '../auth/rate-limits.js';
import type { Metrics } from '../observability/metrics.js';
import {
  ActiveSpan,
  readTraceparent,
  runInScope,
  Scope,
  type SpanExporter,
} from '../observability/spans.js';
import type { OracleRequest } from './ucan-guard.js';

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
    if (!exporter || isHealth(request)) return void runInScope(scope, () => next());
    const { method } = request;
    const span = new ActiveSpan(scope, { kind: 'request', name: method, facts: { method } });
    response.once('close', () => {
      const { statusCode: status } = response;
      const error = status >= 500 ? String(status) : undefined;
      const facts = { route: readRoute(request), status, userId: request.caller?.did };
      span.end({ error, facts });
    });
    span.run(() => next());
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
export function adoptRequestId(
  request: OracleRequest,
  response: Response,
  id: string | undefined,
): void {
  if (!id || request.header('x-request-id')) return;
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

/** Refuses a request whose host depends on who reads it. */
export function assertOneHost(request: Request, _: Response, next: NextFunction): void {
  if (namesSeveralHosts(request))
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
    // The guard counts requests with credentials: a valid caller must not suffer from others at its address. The
    // error filter counts requests that fail before they reach the guard.
    request.isCounted = isExempt || isDocs(request) || !hasCredentials(request);
    if (request.isCounted && !isExempt) limits.takeAnonymous(request.ip, response);
    next();
  };
}

function hasCredentials({ headers }: OracleRequest): boolean {
  const { invocation, delegation } = readCredentials(headers);
  return [invocation, delegation, readAccessKey(headers)].some((sent) => sent !== undefined);
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
