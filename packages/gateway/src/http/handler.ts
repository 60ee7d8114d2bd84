import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Caller } from '../gating/caller.js';
import { explainFault } from '../query/explain-fault.js';
import { QueryFault } from '../query/query-fault.js';
import { GrpcCode } from '../upstream/grpc-error.js';
import { readAddressKey } from './address.js';
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
    const { path, method } = exchange;
    const allowed = ownMethods(path);
    if (allowed && !allowed.includes(method)) return refuseMethod(exchange, allowed);
    if (isOpen(path)) return this.serveOpen(exchange);
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
    const { path, response } = exchange;
    // The client may have left while its credentials were checked.
    if (response.destroyed) return;
    exchange.callerKey = caller.name;
    if (ownRoutes.has(path)) return this.serveOwn(exchange);
    if (path !== BATCH) return this.chain.serve(exchange, caller);
    exchange.subject = BATCH;
    return serveBatch(exchange, caller, this.parts);
  }

  private serveOwn(exchange: Exchange): void {
    exchange.subject = exchange.path;
    ownRoutes.get(exchange.path)?.serve(exchange, this.parts);
  }

  private admit({ request }: Exchange): Caller | Promise<Caller> {
    const { admission, config } = this.parts;
    const address = readAddressKey(request, config.gating.proxies);
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
function isOpen(path: string): boolean {
  return ownRoutes.get(path)?.isPublic ?? isDocs(path);
}

const isDocs = (path: string) => path === DOCS || path.startsWith(`${DOCS}/`);

/** The methods of a path that is the gateway's own; known without credentials, since everybody may read the docs. */
function ownMethods(path: string): readonly string[] | undefined {
  if (path === BATCH) return ['POST'];
  return ownRoutes.has(path) || isDocs(path) ? ['GET', 'HEAD'] : undefined;
}

function refuseMethod(exchange: Exchange, allowed: readonly string[]): void {
  const Allow = [...allowed, 'OPTIONS'].join(', ');
  if (exchange.method === 'OPTIONS') {
    exchange.send(204, { Allow });
    return;
  }
  const text = `${exchange.method} is not allowed here; allowed are ${Allow}`;
  throw new QueryFault(GrpcCode.unimplemented, text, { status: 405, headers: { Allow } });
}

function tooLong(): QueryFault {
  const text = `the address is longer than ${MAX_TARGET_CHARACTERS} characters`;
  return new QueryFault(GrpcCode.invalidArgument, text, { status: 414 });
}
