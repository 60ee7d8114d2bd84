import { hash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { GrpcCode } from '@sibyl/grpc-client';
import { GoQuery, type QueryValues } from '../binding/go-url.js';
import type { Config } from '../config/config.js';
import type { NodePool } from '../nodes/node-pool.js';
import { type Match, type Route, UnknownTypeBindError } from '../schema/schema.js';
import type { SchemaGroup, SchemaRegistry } from '../schema/schema-registry.js';
import { integerField, messageAt } from '../upstream/abci-upstream.js';
import { HEIGHT_METADATA, parseHeight } from '../upstream/upstream.js';
import { badRequest, QueryError } from './query-error.js';
import type { ParsedQuery } from './query-service.js';
import type { TypeLookup } from './type-lookup.js';

const NONE: readonly string[] = [];

/** A query over HTTP or in a batch. */
export interface QueryRequest {
  readonly method: string;
  /** Still percent-encoded. */
  readonly path: string;
  readonly query: QueryValues;
  readonly headers: IncomingHttpHeaders;
  /** Reads the body, if the route has one. */
  readonly body?: () => Promise<Uint8Array>;
}

const FORM = 'application/x-www-form-urlencoded';
/** Types that are looked up for one body. */
const MAX_LOOKUPS = 20;

interface QueryParserOptions {
  readonly pool: NodePool;
  readonly schemaRegistry: SchemaRegistry;
  readonly typeLookup: TypeLookup;
  readonly config: Config;
}

/** Throws if the caller may not query the route. */
export type PermissionCheck = (route: Route) => void;

type RouteMatch = Extract<Match, { kind: 'route' }>;

interface Bound {
  readonly group: SchemaGroup;
  readonly match: RouteMatch;
}

/** Parses HTTP requests into queries of the chain. */
export class QueryParser {
  constructor(private readonly options: QueryParserOptions) {}

  /** Returns a promise only for routes with a body. */
  read(
    request: QueryRequest,
    checkPermission: PermissionCheck,
  ): ParsedQuery | Promise<ParsedQuery> {
    const { method, path } = request;
    const found = this.findRoute({ method, path, height: this.guessHeight(request) });
    if (!found) throw notReady();
    const { group } = found;
    const match = this.expectRoute(found.match, request);
    checkPermission(match.route);
    if (match.route.httpMethod === 'GET' || !request.body)
      return this.bind(request, { group, match });
    return request.body().then((body) => this.bindBody(request, { group, match }, body));
  }

  /** Finds the route of a path; prefers the best match, then schemas of nodes that have the state. */
  private findRoute({ method, path, height }: RoutePlace): Found | undefined {
    const { groups } = this.options.schemaRegistry;
    let best: Found | undefined;
    let bestRank = Number.POSITIVE_INFINITY;
    for (const group of groups) {
      const match = group.schema.match(method, path);
      const rank = rankMatch(match) + (groups.length === 1 ? 0 : this.rankNodes(group, height));
      if (rank < bestRank) {
        best = { group, match };
        bestRank = rank;
      }
    }
    return best;
  }

  /** Below 1. A node that was not upgraded stays at its last block, so that its schema comes after that of the others. */
  private rankNodes({ nodes }: SchemaGroup, height: number | undefined): number {
    const { pool } = this.options;
    if (height === undefined && nodes.some((node) => pool.hasLatest(node))) return 0;
    if (nodes.some((node) => pool.isUsable(node, height))) return 0.125;
    return nodes.some(({ isUp }) => isUp) ? 0.25 : 0.5;
  }

  /** Looks up types that the body names and the schema lacks. */
  private async bindBody(
    request: QueryRequest,
    bound: Bound,
    body: Uint8Array,
  ): Promise<ParsedQuery> {
    const { typeLookup, config } = this.options;
    const startedAt = performance.now();
    for (let lookups = 0; ; lookups += 1) {
      try {
        const parsed = this.bind(request, bound, body);
        if (lookups === 0) return parsed;
        const leftMs = parsed.timeoutMs - (performance.now() - startedAt);
        return { ...parsed, timeoutMs: Math.max(1, leftMs) };
      } catch (error) {
        if (!(error instanceof UnknownTypeBindError) || lookups === MAX_LOOKUPS) throw error;
        const timeoutMs = readTimeout(request.headers, config.nodes.timeoutMs, config.compat);
        const endsAt = startedAt + timeoutMs;
        if (!(await typeLookup.resolve(bound.group, error.typeName, endsAt))) throw error;
      }
    }
  }

  private bind(request: QueryRequest, { group, match }: Bound, body?: Uint8Array): ParsedQuery {
    const { config } = this.options;
    const { headers, query } = request;
    const { route, params, successor } = match;
    if (config.compat) checkBinaryMetadata(headers);
    if (query instanceof GoQuery && query.error && route.readsQuery) throw badRequest(query.error);
    const bound = route.bind({ params, query: this.selectFields(query, route), body });
    return {
      route,
      group,
      message: bound.message,
      isPageCapped: bound.isPageCapped,
      height: this.getHeight(request, route),
      minHeight: readMinHeight(headers),
      metadata: readMetadata(headers, config.nodes.forwardedMetadata),
      timeoutMs: readTimeout(headers, config.nodes.timeoutMs, config.compat),
      isFresh: isCacheBypass(headers, config.cache.bypassSecret),
      successor,
    };
  }

  /** The methods of a path, for OPTIONS; throws if there is no such path. */
  allowed(request: QueryRequest): readonly string[] {
    const { method, path } = request;
    const found = this.findRoute({ method, path, height: undefined });
    if (!found) throw notReady();
    if (found.match.kind === 'method_not_allowed') return listMethods(found.match.allow);
    return [this.expectRoute(found.match, request).route.httpMethod];
  }

  /** Whether a node reads the parameters of a GET route from the form that the request posts. */
  isForm({ method, path, headers }: QueryRequest): boolean {
    if (method !== 'POST' || headers['content-type'] !== FORM) return false;
    const posted = this.findRoute({ method, path, height: undefined });
    if (posted?.match.kind !== 'method_not_allowed') return false;
    const found = this.findRoute({ method: 'GET', path, height: undefined });
    return found?.match.kind === 'route' && !found.match.route.grpcMethod.startsWith(UNEXPOSED);
  }

  /** The method that a form asks for instead of POST; a node then reads no parameters from the form. */
  findOverride({ method, headers }: QueryRequest): string | undefined {
    if (method !== 'POST' || headers['content-type'] !== FORM) return undefined;
    const override = String(headers['x-http-method-override'] ?? '').toUpperCase();
    return override === '' || override === 'POST' ? undefined : override;
  }

  /** The height as far as it matters for the choice of a schema. */
  private guessHeight({ headers, query }: QueryRequest): number | undefined {
    // A node reads the height last, so that an error in it does not precede others.
    if (this.options.config.compat)
      return parseHeight(headers[HEIGHT_METADATA] ?? headers[HEIGHT_HEADER]) || undefined;
    const inQuery = query.size > 0 ? parseHeight(query.get('height')) : undefined;
    return inQuery || readRequestedHeight(headers, NONE);
  }

  /** A request field with that name takes precedence. */
  private getHeight({ headers, query }: QueryRequest, route: Route): number | undefined {
    if (this.options.config.compat) return readNodeHeight(headers);
    const isOwn = query.size > 0 && query.has('height') && !route.takesQueryKey('height');
    return readRequestedHeight(headers, isOwn ? query.getAll('height') : NONE);
  }

  private selectFields(query: QueryValues, route: Route): QueryValues {
    if (this.options.config.compat || query.size === 0) return query;
    const own = ['height', 'watch'].filter((key) => query.has(key) && !route.takesQueryKey(key));
    if (own.length === 0) return query;
    const fields = new URLSearchParams(query as URLSearchParams);
    for (const key of own) fields.delete(key);
    return fields;
  }

  private expectRoute(match: Match, { method, path }: QueryRequest): RouteMatch {
    switch (match.kind) {
      case 'route':
        if (this.options.config.compat) refuseUnexposed(method, match.route);
        this.refuseUnanswerable(match.route);
        return match;
      case 'malformed':
        throw badRequest(match.message);
      case 'not_found':
        throw this.unknownPath(`${method} ${path.slice(0, 200)}`, match.nearest);
      case 'method_not_allowed':
        throw this.wrongMethod(method, match.allow);
      default:
        return match satisfies never;
    }
  }

  private refuseUnanswerable({ isWrite, isServed, grpcMethod }: Route): void {
    if (isWrite) throw new QueryError(GrpcCode.permissionDenied, WRITE_REFUSAL);
    if (isServed || this.options.config.compat) return;
    const text = `${grpcMethod} is declared, but not served by the nodes behind this gateway`;
    throw new QueryError(GrpcCode.unimplemented, text);
  }

  private unknownPath(request: string, nearest: readonly string[]): QueryError {
    if (this.options.config.compat) return notImplemented();
    const hint = nearest.length > 0 ? `; similar routes: ${nearest.join(', ')}` : '';
    return new QueryError(GrpcCode.notFound, `there is no route ${request}${hint}`);
  }

  private wrongMethod(method: string, allow: readonly string[]): QueryError {
    if (this.options.config.compat) return notImplemented();
    const Allow = listMethods(allow).join(', ');
    const text = `${method} is not allowed here; allowed are ${Allow}`;
    return new QueryError(GrpcCode.unimplemented, text, { status: 405, headers: { Allow } });
  }
}

/** Services that nodes serve over gRPC but not over HTTP, although they have paths. */
const UNEXPOSED = '/cosmos.base.reflection.';

function refuseUnexposed(method: string, { grpcMethod }: Route): void {
  if (method === 'HEAD' || grpcMethod.startsWith(UNEXPOSED)) throw notImplemented();
}

/** Adds HEAD and OPTIONS to the methods of a path. */
function listMethods(methods: readonly string[]): string[] {
  const head = methods.includes('GET') && !methods.includes('HEAD') ? ['HEAD'] : [];
  return [...new Set([...methods, ...head, 'OPTIONS'])];
}

const WRITE_REFUSAL =
  "this gateway serves only queries: sign the transaction with your own key, in a wallet or an SDK, and broadcast it through a node's own RPC, such as broadcast_tx_sync";

/** The message of a node for an unknown path. */
const notImplemented = () => new QueryError(GrpcCode.unimplemented, 'Not Implemented');

const notReady = () =>
  new QueryError(GrpcCode.unavailable, 'no node has reported its schema yet; see /health', {
    headers: { 'Retry-After': '1' },
  });

interface RoutePlace {
  readonly method: string;
  readonly path: string;
  readonly height: number | undefined;
}

interface Found {
  readonly group: SchemaGroup;
  readonly match: Match;
}

function rankMatch(match: Match): number {
  if (match.kind === 'route') return match.route.isServed ? 0 : 1;
  return match.kind === 'method_not_allowed' ? 2 : 3;
}

const METADATA_PREFIX = 'grpc-metadata-';
export const HEIGHT_HEADER = METADATA_PREFIX + HEIGHT_METADATA;

/** The header with the value of a metadata name. */
export const toMetadataHeader = (name: string) => METADATA_PREFIX + name;

/** The longest value of one forwarded header. */
const MAX_VALUE_CHARACTERS = 1024;

/**
 * The metadata of `Grpc-Metadata-*` headers that the operator allows; undefined if there is none.
 * Others are ignored, since such queries cannot be cached.
 */
export function readMetadata(
  headers: IncomingHttpHeaders,
  forwarded: readonly string[],
): Record<string, string> | undefined {
  let metadata: Record<string, string> | undefined;
  for (const name of forwarded) {
    const value = headers[toMetadataHeader(name)];
    if (typeof value !== 'string') continue;
    if (value.length > MAX_VALUE_CHARACTERS) {
      throw badRequest(`Grpc-Metadata-${name} has more than ${MAX_VALUE_CHARACTERS} characters`);
    }
    metadata = { ...metadata, [name]: value };
  }
  return metadata;
}

const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?$/;

/** A node decodes metadata whose name ends in `-bin`, also if no service reads it. */
function checkBinaryMetadata(headers: IncomingHttpHeaders): void {
  for (const name in headers) {
    if (!name.startsWith(METADATA_PREFIX) || !name.endsWith('-bin')) continue;
    const values = String(headers[name]).split(', ');
    if (values.some((value) => !BASE64.test(value))) throw badRequest(`${name} is not base64`);
  }
}

const TIMEOUT = /^(\d{1,8})([HMSmun])$/;
/** A node reads any 64-bit number. */
const NODE_TIMEOUT = /^([+-]?\d{1,18})([HMSmun])$/;
const UNIT_MS = { H: 3_600_000, M: 60_000, S: 1000, m: 1, u: 0.001, n: 0.000_001 } as const;

/** The client's `Grpc-Timeout`, limited by the gateway's own timeout. */
export function readTimeout(
  headers: IncomingHttpHeaders,
  longestMs: number,
  compat?: 'node',
): number {
  const header = headers['grpc-timeout'];
  if (header === undefined) return longestMs;
  const [, digits, unit] = (compat ? NODE_TIMEOUT : TIMEOUT).exec(String(header)) ?? [];
  if (!digits || !unit) throw badRequest('Grpc-Timeout must be a number and a unit, such as 500m');
  const ms = Number(digits) * UNIT_MS[unit as keyof typeof UNIT_MS];
  // A node does not limit the time for 0.
  if (compat && ms === 0) return longestMs;
  return Math.min(longestMs, Math.max(0, ms));
}

/** The height in the headers or the query parameters; throws if they conflict. */
export function readRequestedHeight(
  headers: IncomingHttpHeaders,
  inQuery: readonly string[],
): number | undefined {
  if (!(HEIGHT_METADATA in headers || HEIGHT_HEADER in headers || inQuery.length > 0)) {
    return undefined;
  }
  const named = [headers[HEIGHT_METADATA], headers[HEIGHT_HEADER], ...inQuery];
  const given = named.filter((text) => text !== undefined);
  const [height, ...others] = given.map(parseHeightOrThrow);
  if (others.some((other) => other !== height)) {
    throw badRequest(`conflicting heights: ${given.join(' and ')}`);
  }
  // In the SDK, 0 means the latest height.
  return height === 0 ? undefined : height;
}

/** Go's `ParseInt` in base 10. */
const GO_INTEGER = /^[+-]?\d{1,19}$/;

/** The height as a node reads it: it ignores more than one, and its errors all have the code unknown. */
function readNodeHeight(headers: IncomingHttpHeaders): number | undefined {
  const given = [headers[HEIGHT_METADATA], headers[HEIGHT_HEADER]].filter(
    (one) => one !== undefined,
  );
  const [text] = given;
  // Node.js joins several headers of a name with a comma and a space.
  if (given.length !== 1 || typeof text !== 'string' || text.includes(', ')) return undefined;
  if (!GO_INTEGER.test(text)) {
    const reason = `invalid height header ${JSON.stringify(HEIGHT_METADATA)}: ${text.slice(0, 40)}`;
    throw new QueryError(GrpcCode.unknown, `${reason}: invalid request`);
  }
  const height = Number(text);
  if (height >= 0) return height || undefined;
  const reason = 'cannot query with height < 0; please provide a valid height';
  throw new QueryError(GrpcCode.unknown, `${reason}: invalid request`);
}

/** The header with the height that the chain must have reached. */
export const MIN_HEIGHT_HEADER = 'x-min-block-height';

export function readMinHeight(headers: IncomingHttpHeaders): number | undefined {
  const text = headers[MIN_HEIGHT_HEADER];
  return text === undefined ? undefined : parseHeightOrThrow(text);
}

function parseHeightOrThrow(text: string | string[]): number {
  // Go accepts a sign.
  const height = parseHeight(typeof text === 'string' ? text.replace(/^\+/, '') : text);
  if (height === undefined) throw badRequest(`${String(text).slice(0, 40)} is not a block height`);
  return height;
}

/** Whether an operator requests a fresh reply from a node. */
export function isCacheBypass(headers: IncomingHttpHeaders, secret: string | undefined): boolean {
  const given = headers['x-cache-bypass'];
  if (given === undefined || secret === undefined) return false;
  // Digests have equal lengths, as timingSafeEqual requires.
  const digest = (text: string) => hash('sha256', text, 'buffer');
  if (timingSafeEqual(digest(String(given)), digest(secret))) return true;
  throw new QueryError(GrpcCode.permissionDenied, 'X-Cache-Bypass is invalid');
}

/** Cost of a query in units of the rate limit, besides the first one. */
const ENTRIES_PER_UNIT = 100;
const SKIPPED_PER_UNIT = 1000;
const BODY_BYTES_PER_UNIT = 16 * 1024;
/** For a total, a node counts all entries. */
const COUNT_TOTAL_UNITS = 10;
const MAX_UNITS = 100;

/** PageRequest: 1 key, 2 offset, 3 limit, 4 count_total. */
const PAGE = { key: 1, offset: 2, limit: 3, countTotal: 4 } as const;

/** The units a body of this size costs, before anything is read from it. */
export const bodyCost = (bytes: number): number => Math.floor(bytes / BODY_BYTES_PER_UNIT);

/** The extra units of a query: for large pages, skipped entries and totals. */
export function extraCost({ route, message }: ParsedQuery): number {
  if (route.pageField === undefined) return 0;
  const page = messageAt(message, [route.pageField]);
  const limit = integerField(page, PAGE.limit);
  const ofEntries = Math.floor(Math.max(0, limit - 1) / ENTRIES_PER_UNIT);
  const ofSkipped = Math.floor(integerField(page, PAGE.offset) / SKIPPED_PER_UNIT);
  // Without a limit, the node counts too, unless it continues at a key.
  const isCounted =
    messageAt(page, [PAGE.key]).length === 0 &&
    (limit === 0 || integerField(page, PAGE.countTotal) > 0);
  const ofTotal = isCounted ? COUNT_TOTAL_UNITS : 0;
  return Math.min(MAX_UNITS, ofEntries + ofSkipped + ofTotal);
}
