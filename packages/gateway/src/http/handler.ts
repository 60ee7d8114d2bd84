import type { IncomingMessage, ServerResponse } from 'node:http';
import { permit } from '../gating/admission.js';
import type { Caller } from '../gating/caller.js';
import { explainFault } from '../query/explain-fault.js';
import { QueryFault } from '../query/query-fault.js';
import type { AskedQuestion } from '../query/question.js';
import type { Asked } from '../query/questions.js';
import { GrpcCode } from '../upstream/grpc-error.js';
import { addressOf } from './address.js';
import { serveBatch } from './batch.js';
import { Cors } from './cors.js';
import { serveDocsPage } from './docs-page.js';
import { Exchange } from './exchange.js';
import type { GatewayParts } from './gateway-parts.js';
import { ownRoutes } from './own-routes.js';
import { readBody } from './read-body.js';
import { sendFault } from './send-json.js';
import { ReplySender } from './send-reply.js';

/** Longer targets than this no route has; a batch takes them one by one. */
const MAX_TARGET_CHARACTERS = 8192;

const BATCH = '/batch';
const OPENAPI = '/docs/openapi.json';

/** Answers every request, whatever comes. */
export class Handler {
  private readonly cors: Cors;
  private readonly sender: ReplySender;

  constructor(private readonly parts: GatewayParts) {
    this.cors = new Cors(parts.config.corsOrigins);
    this.sender = new ReplySender(parts.config);
  }

  readonly handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const exchange = new Exchange(request, response);
    response.once('close', () => this.record(exchange));
    try {
      await this.respond(exchange);
    } catch (fault) {
      this.refuse(exchange, fault);
    }
  };

  private async respond(exchange: Exchange): Promise<void> {
    const { request, response, requestId } = exchange;
    response.setHeader('X-Request-Id', requestId);
    response.setHeader('X-Content-Type-Options', 'nosniff');
    this.cors.allow(exchange);
    if ((request.url?.length ?? 0) > MAX_TARGET_CHARACTERS) throw tooLong();
    if (this.cors.answerPreflight(exchange) || (await this.serveOpen(exchange))) return;
    await this.serveGated(exchange, await this.admit(exchange));
  }

  /** What everybody may see; false if it is something else. */
  private serveOpen(exchange: Exchange): boolean | Promise<boolean> {
    if (!isRead(exchange)) return false;
    if (exchange.path.startsWith('/docs') && exchange.path !== OPENAPI) {
      exchange.subject = '/docs';
      return serveDocsPage(exchange);
    }
    const isPublic = ownRoutes.get(exchange.path)?.isPublic ?? false;
    if (isPublic) this.serveOwn(exchange);
    return isPublic;
  }

  private async serveGated(exchange: Exchange, caller: Caller): Promise<void> {
    const { method, path } = exchange;
    const isOwn = ownRoutes.has(path);
    if (isOwn && isRead(exchange)) return this.serveOwn(exchange);
    if (isOwn) throw wrongMethod(method, 'GET, HEAD');
    if (path !== BATCH) return this.serveChain(exchange, caller);
    if (method !== 'POST') throw wrongMethod(method, 'POST');
    exchange.subject = BATCH;
    await serveBatch(exchange, caller, this.parts);
  }

  private serveChain(exchange: Exchange, caller: Caller): void | Promise<void> {
    const { method, path, query, request, response } = exchange;
    const { admission, config, questions } = this.parts;
    admission.spend(caller, 1);
    const asked = { method, path, query, headers: request.headers, body: () => readBody(request) };
    if (method !== 'OPTIONS' || config.compat) return this.serveQuery(exchange, caller, asked);
    response.writeHead(204, { Allow: questions.allowed(asked).join(', ') }).end();
  }

  private serveOwn(exchange: Exchange): void {
    exchange.subject = exchange.path;
    ownRoutes.get(exchange.path)?.serve(exchange, this.parts);
  }

  private admit({ request }: Exchange): Promise<Caller> {
    const { admission, config } = this.parts;
    const address = addressOf(request, config.gating.proxies);
    return admission.admit({ headers: request.headers, address });
  }

  private async serveQuery(exchange: Exchange, caller: Caller, asked: Asked): Promise<void> {
    const { questions, answers } = this.parts;
    const question = await questions.read(asked, (route) => {
      exchange.subject = route.grpcMethod;
      permit(caller, route);
    });
    exchange.height = question.height;
    if (this.isWatch(exchange, question)) return this.watch(exchange, question);
    const reply = await answers.answer(question, () => exchange.gone());
    await this.sender.send(exchange, question, reply);
  }

  private isWatch({ query, method }: Exchange, { route }: AskedQuestion): boolean {
    if (method !== 'GET' || this.parts.config.compat) return false;
    const isWanted = query.has('watch') && !['false', '0'].includes(query.get('watch') ?? '');
    return isWanted && !route.takesQueryKey('watch');
  }

  private watch(exchange: Exchange, question: AskedQuestion): void {
    if (question.height !== undefined) {
      throw new QueryFault(GrpcCode.invalidArgument, 'what happened at one height never changes');
    }
    this.parts.watches.begin(exchange, question);
  }

  private refuse(exchange: Exchange, fault: unknown): void {
    const { pool, config, logger } = this.parts;
    const { response, requestId, height } = exchange;
    const told = explainFault(fault, { pool, height, compat: config.compat });
    if (!told) logger.error({ requestId, error: String((fault as Error)?.stack) }, 'fault');
    // With the status out, all that is left is to hang up.
    if (response.headersSent) return void response.destroy();
    sendFault(exchange, told ?? new QueryFault(GrpcCode.internal, 'internal error'));
  }

  private record({ response, request, subject, startedAt, requestId }: Exchange): void {
    const ms = performance.now() - startedAt;
    const { statusCode: status } = response;
    this.parts.metrics.countRequest(subject, status, ms / 1000);
    const line = {
      requestId,
      method: request.method,
      subject,
      status,
      ms: Math.round(ms * 10) / 10,
    };
    if (status >= 500 && !ownRoutes.has(subject)) this.parts.logger.warn(line, 'request');
    else this.parts.logger.debug(line, 'request');
  }
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
