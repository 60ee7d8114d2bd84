import type { Exchange } from './exchange.js';

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
  allow({ request, response }: Exchange): void {
    if (this.origins.size === 0) return;
    const isForAll = this.origins.has('*');
    if (!isForAll) response.appendHeader('Vary', 'Origin');
    const { origin } = request.headers;
    if (origin === undefined || !(isForAll || this.origins.has(origin))) return;
    response.setHeader('Access-Control-Allow-Origin', isForAll ? '*' : origin);
    response.setHeader('Access-Control-Expose-Headers', EXPOSED_HEADERS);
  }

  /** Whether a page asks in advance and was answered. */
  answerPreflight({ request, response, method }: Exchange): boolean {
    const isPreflight = method === 'OPTIONS' && 'access-control-request-method' in request.headers;
    if (!isPreflight || !response.hasHeader('Access-Control-Allow-Origin')) return false;
    response.setHeader('Access-Control-Allow-Methods', METHODS);
    response.setHeader('Access-Control-Allow-Headers', REQUEST_HEADERS);
    response.setHeader('Access-Control-Max-Age', PREFLIGHT_SECONDS);
    response.writeHead(204).end();
    return true;
  }
}
