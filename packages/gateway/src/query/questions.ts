import type { IncomingHttpHeaders } from 'node:http';
import type { Config } from '../config/config.js';
import type { Match, Route } from '../schema.js';
import type { SchemaGroup, SchemaKeeper } from '../schema-source/schema-keeper.js';
import { GrpcCode } from '../upstream/grpc-error.js';
import { parseHeight } from '../upstream/height.js';
import { isBypass } from './cache-bypass.js';
import { findRoute } from './find-route.js';
import { badRequest, QueryFault } from './query-fault.js';
import type { AskedQuestion } from './question.js';
import { heightOf, readMetadata, timeoutOf } from './request-headers.js';

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
