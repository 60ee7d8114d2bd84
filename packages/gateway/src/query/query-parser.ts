import { hash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { GrpcCode } from '@sibyl/grpc-client';
import { pageFieldOf } from '../binding/request-binder.js';
import type { Config } from '../config/config.js';
import type { ChainNode } from '../nodes/chain-node.js';
import type { Match, Route } from '../schema/schema.js';
import type { SchemaGroup, SchemaKeeper } from '../schema/schema-registry.js';
import { HEIGHT_METADATA, parseHeight } from '../upstream/upstream.js';
import { integerField, messageAt } from '../upstream/wire-fields.js';
import { badRequest, QueryFault } from './query-error.js';
import type { AskedQuestion } from './query-service.js';

const NONE: readonly string[] = [];

/** A request as HTTP or a batch brings it. */
export interface Asked {
  readonly method: string;
  /** Still percent-encoded. */
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
  /** Reads the body, where the route has one. */
  readonly body?: () => Promise<Uint8Array>;
}

interface QuestionsOptions {
  readonly keeper: SchemaKeeper;
  readonly config: Config;
}

/** Throws if the caller may not ask the route. */
export type Permission = (route: Route) => void;

type RouteMatch = Extract<Match, { kind: 'route' }>;

interface Bound {
  readonly group: SchemaGroup;
  readonly match: RouteMatch;
}

/** Makes questions to the chain out of requests. */
export class Questions {
  constructor(private readonly options: QuestionsOptions) {}

  /** At once, or when the body of a route that has one is there. */
  read(asked: Asked, permit: Permission): AskedQuestion | Promise<AskedQuestion> {
    const { method, path, headers, query } = asked;
    const height = parseHeight(query.get('height')) ?? heightOf(headers, NONE);
    const found = findRoute(this.options.keeper.groups, { method, path, height });
    if (!found) throw starting();
    const { group } = found;
    const match = this.expectRoute(found.match, asked);
    permit(match.route);
    if (match.route.httpMethod === 'GET' || !asked.body) return this.bind(asked, { group, match });
    return asked.body().then((body) => this.bind(asked, { group, match }, body));
  }

  private bind(asked: Asked, { group, match }: Bound, body?: Uint8Array): AskedQuestion {
    const { config } = this.options;
    const { headers, query } = asked;
    const { route, params, successor } = match;
    return {
      route,
      group,
      message: route.bind({ params, query: this.fieldsOf(query, route), body }),
      height: this.heightOf(asked, route),
      metadata: readMetadata(headers, config.nodes.forwardedMetadata),
      timeoutMs: timeoutOf(headers, config.nodes.timeoutMs),
      isFresh: isBypass(headers, config.cache.bypassSecret),
      successor,
    };
  }

  /** The methods of a path, for OPTIONS; throws if there is no such path. */
  allowed(asked: Asked): readonly string[] {
    const { method, path } = asked;
    const found = findRoute(this.options.keeper.groups, { method, path, height: undefined });
    if (!found) throw starting();
    if (found.match.kind === 'method_not_allowed') return allowOf(found.match.allow);
    return [this.expectRoute(found.match, asked).route.httpMethod];
  }

  /** A route whose request has a field of that name keeps it. */
  private heightOf({ headers, query }: Asked, route: Route): number | undefined {
    const isOwn =
      query.has('height') && !this.options.config.compat && !route.takesQueryKey('height');
    return heightOf(headers, isOwn ? query.getAll('height') : NONE);
  }

  private fieldsOf(query: URLSearchParams, route: Route): URLSearchParams {
    if (this.options.config.compat || query.size === 0) return query;
    const fields = new URLSearchParams(query);
    for (const own of ['height', 'watch']) if (!route.takesQueryKey(own)) fields.delete(own);
    return fields;
  }

  private expectRoute(match: Match, { method, path }: Asked): RouteMatch {
    switch (match.kind) {
      case 'route':
        if (method === 'HEAD' && this.options.config.compat) throw notImplemented();
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
    if (isWrite) throw new QueryFault(GrpcCode.permissionDenied, WRITE_REFUSAL);
    if (isServed || this.options.config.compat) return;
    const text = `${grpcMethod} is declared, but not served by the nodes behind this gateway`;
    throw new QueryFault(GrpcCode.unimplemented, text);
  }

  private unknownPath(asked: string, nearest: readonly string[]): QueryFault {
    if (this.options.config.compat) return notImplemented();
    const hint = nearest.length > 0 ? `; the nearest are ${nearest.join(', ')}` : '';
    return new QueryFault(GrpcCode.notFound, `there is no route ${asked}${hint}`);
  }

  private wrongMethod(method: string, allow: readonly string[]): QueryFault {
    if (this.options.config.compat) return notImplemented();
    const Allow = allowOf(allow).join(', ');
    const text = `${method} is not allowed here; allowed are ${Allow}`;
    return new QueryFault(GrpcCode.unimplemented, text, { status: 405, headers: { Allow } });
  }
}

/** What OPTIONS tells of a path, beside the methods of its routes. */
function allowOf(methods: readonly string[]): string[] {
  const head = methods.includes('GET') && !methods.includes('HEAD') ? ['HEAD'] : [];
  return [...new Set([...methods, ...head, 'OPTIONS'])];
}

const WRITE_REFUSAL =
  "this gateway answers queries only: sign the transaction with your own key, in a wallet or an SDK, and broadcast it through a node's own RPC, such as broadcast_tx_sync";

/** The words of a node for a path it does not know. */
const notImplemented = () => new QueryFault(GrpcCode.unimplemented, 'Not Implemented');

const starting = () =>
  new QueryFault(GrpcCode.unavailable, 'no node has told its schema yet; see /health', {
    headers: { 'Retry-After': '1' },
  });

export interface Found {
  readonly group: SchemaGroup;
  readonly match: Match;
}

/** Finds the route of a path in the schema of nodes that can answer; of several schemas the best match counts. */
export function findRoute(
  groups: readonly SchemaGroup[],
  { method, path, height }: { method: string; path: string; height: number | undefined },
): Found | undefined {
  const able = (node: ChainNode) => node.isUp && (height === undefined || node.mayHave(height));
  let best: Found | undefined;
  let bestRank = Number.POSITIVE_INFINITY;
  for (const group of groups) {
    const match = group.schema.match(method, path);
    const rank = rankOf(match) + (groups.length === 1 || group.nodes.some(able) ? 0 : 0.5);
    if (rank < bestRank) {
      best = { group, match };
      bestRank = rank;
    }
  }
  return best;
}

function rankOf(match: Match): number {
  if (match.kind === 'route') return match.route.isServed ? 0 : 1;
  return match.kind === 'method_not_allowed' ? 2 : 3;
}

const METADATA_PREFIX = 'grpc-metadata-';
const HEIGHT_HEADER = METADATA_PREFIX + HEIGHT_METADATA;

/** The longest value of one forwarded header. */
const MAX_VALUE_CHARACTERS = 1024;

/**
 * The metadata of `Grpc-Metadata-*` headers that the operator wants forwarded; undefined if there is none.
 * Others are ignored: a node has no use for them, and each would make a question of its own.
 */
export function readMetadata(
  headers: IncomingHttpHeaders,
  forwarded: readonly string[],
): Record<string, string> | undefined {
  let metadata: Record<string, string> | undefined;
  for (const name of forwarded) {
    const value = headers[METADATA_PREFIX + name];
    if (typeof value !== 'string') continue;
    if (value.length > MAX_VALUE_CHARACTERS) {
      throw badRequest(`Grpc-Metadata-${name} has more than ${MAX_VALUE_CHARACTERS} characters`);
    }
    metadata = { ...metadata, [name]: value };
  }
  return metadata;
}

const TIMEOUT = /^(\d{1,8})([HMSmun])$/;
const UNIT_MS = { H: 3_600_000, M: 60_000, S: 1000, m: 1, u: 0.001, n: 0.000_001 } as const;

/** The client's `Grpc-Timeout`, as far as it is shorter than the gateway's own. */
export function timeoutOf(headers: IncomingHttpHeaders, longestMs: number): number {
  const header = headers['grpc-timeout'];
  if (header === undefined) return longestMs;
  const [, digits, unit] = TIMEOUT.exec(String(header)) ?? [];
  if (!digits || !unit) throw badRequest('Grpc-Timeout must be a number and a unit, such as 500m');
  return Math.min(longestMs, Number(digits) * UNIT_MS[unit as keyof typeof UNIT_MS]);
}

/** The heights a client names in headers and, where those count, in the query. */
export function heightOf(
  headers: IncomingHttpHeaders,
  inQuery: readonly string[],
): number | undefined {
  if (!(HEIGHT_METADATA in headers || HEIGHT_HEADER in headers || inQuery.length > 0)) {
    return undefined;
  }
  const named = [headers[HEIGHT_METADATA], headers[HEIGHT_HEADER], ...inQuery];
  const given = named.filter((text) => text !== undefined);
  const [height, ...others] = given.map(readHeight);
  if (others.some((other) => other !== height)) {
    throw badRequest(`two heights are asked for: ${given.join(' and ')}`);
  }
  // The chain's own way to say "the latest".
  return height === 0 ? undefined : height;
}

function readHeight(text: string | string[]): number {
  const height = parseHeight(text);
  if (height === undefined) throw badRequest(`${String(text).slice(0, 40)} is not a block height`);
  return height;
}

/** Whether an operator wants the answer from the node itself. */
export function isBypass(headers: IncomingHttpHeaders, secret: string | undefined): boolean {
  const given = headers['x-cache-bypass'];
  if (given === undefined || secret === undefined) return false;
  // Digests have one length, whatever was given.
  const digest = (text: string) => hash('sha256', text, 'buffer');
  if (timingSafeEqual(digest(String(given)), digest(secret))) return true;
  throw new QueryFault(GrpcCode.permissionDenied, 'X-Cache-Bypass is wrong');
}

/** What one unit of the rate limit pays for, beside the query itself. */
const ENTRIES_PER_UNIT = 100;
const SKIPPED_PER_UNIT = 1000;
const BODY_BYTES_PER_UNIT = 16 * 1024;
/** A node counts everything there is to tell a total. */
const COUNT_TOTAL_UNITS = 10;
const MAX_UNITS = 100;

/** PageRequest: 2 offset, 3 limit, 4 count_total. */
const PAGE = { offset: 2, limit: 3, countTotal: 4 } as const;

/** The units a body of this size costs, before anything is read from it. */
export const bodyCost = (bytes: number): number => Math.floor(bytes / BODY_BYTES_PER_UNIT);

/** The units a question costs beyond the first: for large pages, skipped entries and totals. */
export function extraCost({ route, message }: AskedQuestion): number {
  const field = pageFieldOf(route.request);
  const page = field && messageAt(message, [field.number]);
  if (!page || page.length === 0) return 0;
  const ofEntries = Math.floor(Math.max(0, integerField(page, PAGE.limit) - 1) / ENTRIES_PER_UNIT);
  const ofSkipped = Math.floor(integerField(page, PAGE.offset) / SKIPPED_PER_UNIT);
  const ofTotal = integerField(page, PAGE.countTotal) > 0 ? COUNT_TOTAL_UNITS : 0;
  return Math.min(MAX_UNITS, ofEntries + ofSkipped + ofTotal);
}
