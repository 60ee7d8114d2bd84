import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
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
const DOCS = '/docs';

/** Answers every request, whatever comes. */
export class Handler {
  private readonly cors: Cors;
  private readonly sender: ReplySender;

  constructor(private readonly parts: GatewayParts) {
    this.cors = new Cors(parts.config.corsOrigins);
    this.sender = new ReplySender(parts.config);
  }

  /** Connections with a request under way. */
  readonly busy = new Set<Socket>();

  readonly handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const exchange = new Exchange(request, response);
    const { socket } = request;
    this.busy.add(socket);
    response.once('close', () => {
      this.busy.delete(socket);
      if (!response.writableFinished) exchange.onGone?.();
      this.record(exchange);
    });
    try {
      await this.respond(exchange);
    } catch (fault) {
      this.refuse(exchange, fault);
    }
  };

  private async respond(exchange: Exchange): Promise<void> {
    this.cors.allow(exchange);
    if ((exchange.request.url?.length ?? 0) > MAX_TARGET_CHARACTERS) throw tooLong();
    if (this.cors.answerPreflight(exchange)) return;
    if (isOpen(exchange)) return this.serveOpen(exchange);
    const caller = this.admit(exchange);
    return this.serveGated(exchange, caller instanceof Promise ? await caller : caller);
  }

  private async serveOpen(exchange: Exchange): Promise<void> {
    if (ownRoutes.has(exchange.path)) return this.serveOwn(exchange);
    exchange.subject = DOCS;
    const isServed = await serveDocsPage(exchange);
    if (!isServed) throw new QueryFault(GrpcCode.notFound, 'there is no such page');
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
    const { method, path, query, request } = exchange;
    const { admission, config, questions } = this.parts;
    admission.spend(caller, 1);
    const asked = { method, path, query, headers: request.headers, body: () => readBody(request) };
    if (method !== 'OPTIONS' || config.compat) return this.serveQuery(exchange, caller, asked);
    exchange.send(204, { Allow: questions.allowed(asked).join(', ') });
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

  private async serveQuery(exchange: Exchange, caller: Caller, asked: Asked): Promise<void> {
    const { questions, answers } = this.parts;
    const read = questions.read(asked, (route) => {
      exchange.subject = route.grpcMethod;
      permit(caller, route);
    });
    const question = read instanceof Promise ? await read : read;
    exchange.height = question.height;
    if (this.isWatch(exchange, question)) return this.watch(exchange, question);
    const answer = answers.answer(question, (leave) => {
      exchange.onGone = leave;
    });
    // What is known already need not wait its turn.
    const reply = answer instanceof Promise ? await answer : answer;
    await this.sender.send(exchange, reply, question.successor);
  }

  private isWatch({ query, method }: Exchange, { route }: AskedQuestion): boolean {
    if (query.size === 0 || method !== 'GET' || this.parts.config.compat) return false;
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
