import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Caller } from '../gating/caller.js';
import { explainFault } from '../query/explain-fault.js';
import { QueryFault } from '../query/query-fault.js';
import { GrpcCode } from '../upstream/grpc-error.js';
import { addressOf } from './address.js';
import { serveBatch } from './batch.js';
import { ChainQueries } from './chain-queries.js';
import { Cors } from './cors.js';
import { serveDocsPage } from './docs-page.js';
import { Exchange } from './exchange.js';
import type { GatewayParts } from './gateway-parts.js';
import { ownRoutes } from './own-routes.js';
import { sendFault } from './send-json.js';

/** Longer targets than this no route has; a batch takes them one by one. */
const MAX_TARGET_CHARACTERS = 8192;

const BATCH = '/batch';
const DOCS = '/docs';

/** Answers every request, whatever comes. */
export class Handler {
  private readonly cors: Cors;
  private readonly chain: ChainQueries;

  constructor(private readonly parts: GatewayParts) {
    this.cors = new Cors(parts.config.corsOrigins);
    this.chain = new ChainQueries(parts);
  }

  readonly handle = (request: IncomingMessage, response: ServerResponse): void => {
    const exchange = new Exchange(request, response);
    try {
      const pending = this.respond(exchange);
      if (pending instanceof Promise) void this.finish(exchange, pending);
      else this.record(exchange);
    } catch (fault) {
      this.refuse(exchange, fault);
    }
  };

  private async finish(exchange: Exchange, pending: Promise<void>): Promise<void> {
    try {
      await pending;
      this.record(exchange);
    } catch (fault) {
      this.refuse(exchange, fault);
    }
  }

  private respond(exchange: Exchange): void | Promise<void> {
    this.cors.allow(exchange);
    if ((exchange.request.url?.length ?? 0) > MAX_TARGET_CHARACTERS) throw tooLong();
    if (this.cors.answerPreflight(exchange)) return;
    if (isOpen(exchange)) return this.serveOpen(exchange);
    const caller = this.admit(exchange);
    return caller instanceof Promise
      ? caller.then((admitted) => this.serveGated(exchange, admitted))
      : this.serveGated(exchange, caller);
  }

  private async serveOpen(exchange: Exchange): Promise<void> {
    if (ownRoutes.has(exchange.path)) return this.serveOwn(exchange);
    exchange.subject = DOCS;
    const isServed = await serveDocsPage(exchange);
    if (!isServed) throw new QueryFault(GrpcCode.notFound, 'there is no such page');
  }

  private serveGated(exchange: Exchange, caller: Caller): void | Promise<void> {
    const { method, path } = exchange;
    const isOwn = ownRoutes.has(path);
    if (isOwn && isRead(exchange)) return this.serveOwn(exchange);
    if (isOwn) throw wrongMethod(method, 'GET, HEAD');
    if (path !== BATCH) return this.chain.serve(exchange, caller);
    if (method !== 'POST') throw wrongMethod(method, 'POST');
    exchange.subject = BATCH;
    return serveBatch(exchange, caller, this.parts);
  }

  private serveOwn(exchange: Exchange): void {
    exchange.subject = exchange.path;
    ownRoutes.get(exchange.path)?.serve(exchange, this.parts);
  }

  private admit({ request }: Exchange): Caller | Promise<Caller> {
    const { admission, config } = this.parts;
    const address = addressOf(request, config.gating.proxies);
    return admission.admit({ headers: request.headers, address });
  }

  private refuse(exchange: Exchange, fault: unknown): void {
    const { pool, config, logger } = this.parts;
    const { response, height } = exchange;
    const told = explainFault(fault, { pool, height, compat: config.compat });
    const requestId = exchange.identify();
    if (!told) logger.error({ requestId, error: String((fault as Error)?.stack) }, 'fault');
    // With the status out, all that is left is to hang up.
    if (response.headersSent) response.destroy();
    else sendFault(exchange, told ?? new QueryFault(GrpcCode.internal, 'internal error'));
    this.record(exchange);
  }

  private record({ response, request, subject, startedAt, requestId }: Exchange): void {
    const { metrics, logger } = this.parts;
    const ms = performance.now() - startedAt;
    const { statusCode: status } = response;
    metrics.countRequest(subject, status, ms / 1000);
    const { method } = request;
    const line = { requestId, method, subject, status, ms: Math.round(ms * 10) / 10 };
    if (status >= 500 && !ownRoutes.has(subject)) logger.warn(line, 'request');
    else logger.debug(line, 'request');
  }
}

/** Whether everybody may see it. */
function isOpen(exchange: Exchange): boolean {
  const { path } = exchange;
  const isOwn = ownRoutes.get(path)?.isPublic ?? (path === DOCS || path.startsWith(`${DOCS}/`));
  return isOwn && isRead(exchange);
}

const isRead = ({ method }: Exchange) => method === 'GET' || method === 'HEAD';

function wrongMethod(method: string, Allow: string): QueryFault {
  const text = `${method} is not allowed here; allowed are ${Allow}`;
  return new QueryFault(GrpcCode.unimplemented, text, { status: 405, headers: { Allow } });
}

function tooLong(): QueryFault {
  const text = `the address is longer than ${MAX_TARGET_CHARACTERS} characters`;
  return new QueryFault(GrpcCode.invalidArgument, text, { status: 414 });
}
