import { setImmediate } from 'node:timers/promises';
import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import { TimeoutError, withTimeout } from '@sibyl/server-kit';
import type { BlockWatch } from '../nodes/block-watch.js';
import type { NodePool } from '../nodes/node-pool.js';
import type { Metrics } from '../observe/metrics.js';
import type { Route } from '../schema/schema.js';
import type { SchemaGroup } from '../schema/schema-registry.js';
import { QueryError } from './query-error.js';
import { computeEtag, Reply, ReplyCache } from './reply-cache.js';
import { type SharedResult, SingleFlight } from './single-flight.js';

/** A message of this size takes a millisecond; larger ones are written in slices, so that they do not block the event loop. */
const SLICED_FROM_BYTES = 128 * 1024;
/** Lifetime of replies that are not chain state, such as a node's status: they may change within a block. */
const STATELESS_LIFE_MS = 1000;
/** Minimum timeout of a call to the nodes; a caller may stop waiting earlier. */
const SHORTEST_CALL_MS = 1000;

/** Limits on concurrent calls to nodes and the memory of their keys. */
const SINGLE_FLIGHT_LIMITS = { maxCalls: 4096, maxKeyBytes: 32 * 1024 * 1024 };

interface QueryServiceOptions {
  readonly pool: NodePool;
  readonly blocks: BlockWatch;
  readonly cacheBytes: number;
  readonly metrics: Metrics;
  /** Maximum timeout of a call to the nodes. */
  readonly longestMs: number;
}

/** Runs queries: from the cache while the chain has not changed, otherwise by one shared call to a node. */
export class QueryService {
  readonly cache: ReplyCache;
  private readonly singleFlight = new SingleFlight<Reply>(SINGLE_FLIGHT_LIMITS);
  private unshared = 0;

  constructor(private readonly options: QueryServiceOptions) {
    this.cache = new ReplyCache(options.cacheBytes);
    let latest = 0;
    options.blocks.on('block', (height) => {
      // The height decreases when the chain was reset.
      if (height < latest) this.cache.clear();
      latest = height;
    });
  }

  /** Returns cached replies synchronously. `onGone` receives the function to call if the caller disconnects. */
  answer(query: Query, onGone?: (leave: () => void) => void): Reply | Promise<Reply> {
    const known = this.find(query);
    if (known) {
      this.options.metrics.countCache('hit');
      return known;
    }
    const { outcome, leave } = this.join(query);
    onGone?.(leave);
    const { timeoutMs } = query;
    return timeoutMs < this.callTimeout(timeoutMs)
      ? awaitUntil(timeoutMs, { outcome, leave })
      : outcome;
  }

  /** While no node is available, the latest block is unknown; replies at a height never change. */
  private find(query: Query): Reply | undefined {
    const { latest } = this.options.pool;
    const { isFresh, height, metadata } = query;
    if (isFresh || metadata || (height === undefined && latest === 0)) return undefined;
    return this.cache.get(buildKey(query, latest));
  }

  /** Joins the call for the same query, or starts one. */
  private join(query: Query): SharedResult<Reply> {
    const { metrics, pool } = this.options;
    const { metadata } = query;
    const key = buildKey(query, pool.latest);
    // Metadata may change the reply, so such a call is not shared.
    this.unshared += metadata ? 1 : 0;
    const flightKey = metadata
      ? `${key}#${this.unshared}`
      : `${key}!${this.callTimeout(query.timeoutMs)}`;
    const isShared = this.singleFlight.isRunning(flightKey);
    if (!isShared && !this.singleFlight.canStart(flightKey)) throw tooBusy();
    metrics.countCache(isShared ? 'shared' : 'miss');
    return this.singleFlight.share(flightKey, (signal) => this.fetch(query, key, signal));
  }

  /**
   * The timeout of the shared call: one of a few values, so that timeouts chosen by clients cannot
   * multiply the calls for one query.
   */
  private callTimeout(timeoutMs: number): number {
    const doublings = Math.max(0, Math.ceil(Math.log2(timeoutMs / SHORTEST_CALL_MS)));
    return Math.min(this.options.longestMs, SHORTEST_CALL_MS * 2 ** doublings);
  }

  private async fetch(query: Query, key: string, signal: AbortSignal): Promise<Reply> {
    const { pool, blocks } = this.options;
    const { route, group, message, height, metadata } = query;
    const timeoutMs = this.callTimeout(query.timeoutMs);
    const call = { height, timeoutMs, signal, ...(metadata && { metadata }) };
    const latest = pool.latest;
    const upstreamReply = await pool.call(group.nodes, route.grpcMethod, message, call);
    const isFinal = height !== undefined && isState(route);
    const isLong = upstreamReply.message.length >= SLICED_FROM_BYTES;
    const reply = new Reply({
      body: isLong
        ? await writeInSlices(route, upstreamReply.message)
        : route.write(upstreamReply.message),
      etag: computeEtag(upstreamReply.message, group.schema.fingerprint),
      height: upstreamReply.height ?? height,
      isFinal,
    });
    // The node may have reached a new block since the key was built.
    const isNewer =
      height === undefined && upstreamReply.height !== undefined && upstreamReply.height !== latest;
    const kept = isNewer ? buildKey(query, upstreamReply.height) : key;
    if (!metadata) this.cache.set(kept, reply, isState(route) ? undefined : STATELESS_LIFE_MS);
    blocks.notice();
    return reply;
  }
}

/** Rejects at the caller's own deadline; the call continues for the others. */
async function awaitUntil(ms: number, { outcome, leave }: SharedResult<Reply>): Promise<Reply> {
  const message = `the node did not answer within ${ms} ms`;
  try {
    return await withTimeout({ ms, message }, () => outcome);
  } catch (error) {
    if (!(error instanceof TimeoutError)) throw error;
    leave();
    throw new GrpcError(GrpcCode.deadlineExceeded, message, 'transport');
  }
}

function tooBusy(): QueryError {
  const text = 'too many queries are in progress; try again in a second';
  return new QueryError(GrpcCode.unavailable, text, { headers: { 'Retry-After': '1' } });
}

/** Modules name the services for state queries Query; those of the node are named Service. */
function isState({ grpcMethod }: Route): boolean {
  return grpcMethod.slice(0, grpcMethod.lastIndexOf('/')).endsWith('.Query');
}

/** The cache key of a query. It includes the schema, which determines the JSON, and the height. */
function buildKey({ route, group, message, height }: Query, latest: number): string {
  const bytes = Buffer.from(message.buffer, message.byteOffset, message.length).toString('latin1');
  const moment = height === undefined ? `~${latest}` : `=${height}`;
  return `${group.schema.fingerprint}${route.grpcMethod}\n${bytes.length}\n${bytes}${moment}`;
}

async function writeInSlices(route: Route, message: Uint8Array): Promise<Buffer> {
  const slices: Buffer[] = [];
  for (const slice of route.slices(message)) {
    slices.push(slice);
    await setImmediate();
  }
  return Buffer.concat(slices);
}

/** One query of the chain. */
export interface Query {
  readonly route: Route;
  readonly group: SchemaGroup;
  /** The encoded request message. */
  readonly message: Uint8Array;
  /** Default: the latest block. */
  readonly height: number | undefined;
  /** Sent to the node; such a query is neither cached nor shared. */
  readonly metadata: Readonly<Record<string, string>> | undefined;
  readonly timeoutMs: number;
  /** Bypasses the cache. */
  readonly isFresh: boolean;
}

/** A query parsed from an HTTP request. */
export interface ParsedQuery extends Query {
  /** The current path, if a legacy one was requested. */
  readonly successor: string | undefined;
}
