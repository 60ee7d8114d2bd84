import type { OutgoingHttpHeaders } from 'node:http';
import type { ByteBudget } from '@sibyl/server-kit';
import { checkPermission } from '../auth/admission.js';
import type { Caller } from '../auth/gate.js';
import { GoQuery } from '../binding/go-url.js';
import type { Config } from '../config/config.js';
import { badRequest } from '../query/query-error.js';
import { bodyCost, extraCost, type QueryRequest, toMetadataHeader } from '../query/query-parser.js';
import type { ParsedQuery } from '../query/query-service.js';
import type { Encoding, Reply } from '../query/reply-cache.js';
import type { GatewayDeps } from './gateway-deps.js';
import { type RequestContext, readBody } from './request-context.js';

/** Serves the chain's routes. Sends cached replies synchronously. */
export class ChainQueries {
  private readonly sender: ReplySender;

  constructor(private readonly deps: GatewayDeps) {
    this.sender = new ReplySender(deps.config, deps.outgoing);
  }

  serve(context: RequestContext, caller: Caller): void | Promise<void> {
    const { method, path, query, request } = context;
    const { admission, config, incoming, queryParser } = this.deps;
    admission.spend(caller, 1);
    const body = async () => {
      const bytes = await readBody(context, incoming);
      admission.spendExtra(caller, () => bodyCost(bytes.length));
      return bytes;
    };
    const queryRequest = { method, path, query, headers: request.headers, body };
    if (config.compat) return this.serveLikeNode(context, caller, queryRequest);
    if (method === 'OPTIONS') {
      return context.send(204, { Allow: queryParser.allowed(queryRequest).join(', ') });
    }
    return this.read(context, caller, queryRequest);
  }

  private serveLikeNode(
    context: RequestContext,
    caller: Caller,
    request: QueryRequest,
  ): void | Promise<void> {
    const { search } = context;
    const { queryParser } = this.deps;
    const override = queryParser.findOverride(request);
    if (override !== undefined) {
      const query = new GoQuery(search);
      if (query.error) throw badRequest(query.error);
      return this.read(context, caller, { ...request, method: override, query });
    }
    if (!queryParser.isForm(request)) {
      return this.read(context, caller, { ...request, query: new GoQuery(search) });
    }
    const readForm = async () => {
      const form = Buffer.from((await request.body?.()) ?? []).toString('latin1');
      const query = new GoQuery(form, search);
      if (query.error) throw badRequest(query.error);
      return this.read(context, caller, { ...request, method: 'GET', query });
    };
    return readForm();
  }

  private read(
    context: RequestContext,
    caller: Caller,
    request: QueryRequest,
  ): void | Promise<void> {
    const parsed = this.deps.queryParser.read(request, (route) => {
      context.subject = route.grpcMethod;
      checkPermission(caller, route);
    });
    return parsed instanceof Promise
      ? parsed.then((read) => this.answer(context, caller, read))
      : this.answer(context, caller, parsed);
  }

  private answer(
    context: RequestContext,
    caller: Caller,
    parsed: ParsedQuery,
  ): void | Promise<void> {
    context.height = parsed.height;
    const { successor } = parsed;
    if (successor !== undefined) {
      context.headers.Deprecation = 'true';
      context.headers.Link = `<${successor}>; rel="successor-version"`;
    }
    this.deps.admission.spendExtra(caller, () => extraCost(parsed));
    if (this.isWatch(context, parsed)) return this.watch(context, caller, parsed);
    const onGone = (leave: () => void) => void context.response.on('close', leave);
    const reply = this.deps.queryService.answer(parsed, caller, onGone);
    return reply instanceof Promise
      ? reply.then((answered) => this.sender.send(context, answered, parsed))
      : this.sender.send(context, reply, parsed);
  }

  private isWatch(context: RequestContext, { route }: ParsedQuery): boolean {
    if (context.search === '' || context.method !== 'GET' || this.deps.config.compat) return false;
    const { query } = context;
    const isWanted = query.has('watch') && !['false', '0'].includes(query.get('watch') ?? '');
    return isWanted && !route.takesQueryKey('watch');
  }

  private watch(context: RequestContext, caller: Caller, parsed: ParsedQuery): void {
    if (parsed.height !== undefined)
      throw badRequest('a fixed height cannot be watched, since its state never changes');
    this.deps.watches.begin(context, parsed, caller);
  }
}

/** Below this, compression costs more than it saves. */
const COMPRESSED_FROM_BYTES = 1024;
/** One year, the usual maximum. */
const FINAL = 'max-age=31536000, immutable';
const VARY = ['Accept-Encoding', 'X-Cosmos-Block-Height', 'Grpc-Metadata-X-Cosmos-Block-Height'];

/** Sends replies in the encoding the client accepts. */
export class ReplySender {
  private readonly lasting: string;
  private readonly passing: string;
  private readonly vary: string;
  private readonly isPlain: boolean;

  constructor(
    { compat, gating, nodes }: Pick<Config, 'compat' | 'gating' | 'nodes'>,
    private readonly outgoing: ByteBudget,
  ) {
    // Shared caches must not serve one caller's replies to others.
    const sharing = gating.auth === 'none' ? 'public' : 'private';
    this.lasting = `${sharing}, ${FINAL}`;
    this.passing = `${sharing}, no-cache`;
    this.vary = [...VARY, ...nodes.forwardedMetadata.map(toMetadataHeader)].join(', ');
    this.isPlain = compat === 'node';
  }

  send(context: RequestContext, reply: Reply, parsed: ParsedQuery): void | Promise<void> {
    const { headers, request } = context;
    if (this.isPlain) return this.sendBody(context, reply, parsed);
    // For other methods, 304 has no meaning.
    const isRead = context.method === 'GET' || context.method === 'HEAD';
    if (isRead && isKnown(request.headers['if-none-match'], reply.etag)) {
      this.describe(headers, reply, parsed);
      return context.send(304);
    }
    const isLarge = reply.length >= COMPRESSED_FROM_BYTES;
    const encoding = isLarge ? acceptedEncoding(request.headers['accept-encoding']) : undefined;
    if (!encoding) return this.sendBody(context, reply, parsed);
    return reply.as(encoding).then((body) => {
      context.holdMemory(body, this.outgoing);
      this.describe(headers, reply, parsed);
      headers['Content-Encoding'] = encoding;
      sendContent(context, body.length, body);
    });
  }

  /** Sets all headers except those of the content, once nothing can fail anymore. */
  private describe(
    head: OutgoingHttpHeaders,
    { etag, height }: Reply,
    { route, height: requested, metadata }: ParsedQuery,
  ): void {
    if (height !== undefined) head['Grpc-Metadata-X-Cosmos-Block-Height'] = height;
    if (this.isPlain) {
      head['Grpc-Metadata-Content-Type'] = 'application/grpc';
      return;
    }
    head.Vary = head.Vary === undefined ? this.vary : `${head.Vary}, ${this.vary}`;
    head.ETag = etag;
    // State at a requested height never changes.
    const isFinal = requested !== undefined && route.isState;
    const usual = isFinal ? this.lasting : this.passing;
    // Metadata may change the reply.
    head['Cache-Control'] = metadata ? 'private, no-cache' : usual;
    if (height !== undefined) head['X-Block-Height'] = height;
  }

  private sendBody(context: RequestContext, reply: Reply, parsed: ParsedQuery): void {
    const body = reply.text ?? reply.body;
    if (typeof body !== 'string') context.holdMemory(body, this.outgoing);
    this.describe(context.headers, reply, parsed);
    sendContent(context, reply.length, body);
  }
}

function sendContent(context: RequestContext, length: number, body: Buffer | string): void {
  context.headers['Content-Type'] = 'application/json';
  context.headers['Content-Length'] = length;
  context.send(200, undefined, body);
}

/** Whether the client has this reply already, by weak comparison. */
function isKnown(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false;
  const plain = (tag: string) => tag.trim().replace(/^W\//, '');
  return header.trim() === '*' || header.split(',').some((tag) => plain(tag) === plain(etag));
}

const PREFERRED: readonly Encoding[] = ['br', 'gzip'];
const REFUSED = /^q=0(\.0*)?$/;

/** The preferred encoding that `Accept-Encoding` allows. */
export function acceptedEncoding(header: string | string[] | undefined): Encoding | undefined {
  if (typeof header !== 'string') return undefined;
  const accepted = new Set<string>();
  for (const item of header.toLowerCase().split(',')) {
    const [name = '', weight = ''] = item.split(';').map((part) => part.trim());
    if (!REFUSED.test(weight)) accepted.add(name);
  }
  return PREFERRED.find((encoding) => accepted.has(encoding));
}
