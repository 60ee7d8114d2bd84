import type { Exchange } from './exchange.js';

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
  'X-Request-Id',
].join(', ');
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

/** Lets pages of the configured origins read answers; without any, nothing is said. */
export class Cors {
  private readonly origins: ReadonlySet<string>;

  constructor(origins: readonly string[]) {
    this.origins = new Set(origins);
  }

  /** Sets what an answer to this origin needs. */
  allow({ request, headers }: Exchange): void {
    if (this.origins.size === 0) return;
    const isForAll = this.origins.has('*');
    if (!isForAll) headers.Vary = 'Origin';
    const { origin } = request.headers;
    if (origin === undefined || !(isForAll || this.origins.has(origin))) return;
    headers[ALLOW_ORIGIN] = isForAll ? '*' : origin;
    headers['Access-Control-Expose-Headers'] = EXPOSED_HEADERS;
  }

  /** Whether a page asks in advance and was answered. */
  answerPreflight(exchange: Exchange): boolean {
    const { request, method, headers } = exchange;
    const isPreflight = method === 'OPTIONS' && 'access-control-request-method' in request.headers;
    if (!isPreflight || !(ALLOW_ORIGIN in headers)) return false;
    exchange.send(204, {
      'Access-Control-Allow-Methods': METHODS,
      'Access-Control-Allow-Headers': REQUEST_HEADERS,
      'Access-Control-Max-Age': PREFLIGHT_SECONDS,
    });
    return true;
  }
}
