import { setImmediate } from 'node:timers/promises';
import { GrpcCode, GrpcError, type ReplyMemory } from '@sibyl/grpc-client';
import { type ExceededLimit, TimeoutError, withTimeout } from '@sibyl/server-kit';
import type { BlockWatch } from '../nodes/block-watch.js';
import type { NodePool } from '../nodes/node-pool.js';
import type { Metrics } from '../observe/metrics.js';
import { LongJsonError, type Route, UnknownTypeError } from '../schema/schema.js';
import type { SchemaGroup } from '../schema/schema-registry.js';
import type { CallOwner } from '../upstream/upstream.js';
import {
  BlockWaiters,
  type MinHeightOptions,
  MinHeightRequest,
  type OnGone,
  type QueryCaller,
} from './block-waiters.js';
import { badRequest, QueryError } from './query-error.js';
import { computeEtag, Reply, ReplyCache, type SharedResult, SingleFlight } from './reply-cache.js';
import type { TypeLookup } from './type-lookup.js';

/** A message of this size takes a millisecond; larger ones are written in steps, so that they do not block the event loop. */
const STEPS_FROM_BYTES = 128 * 1024;
/** Lifetime of replies that are not chain state, such as a node's status: they may change within a block. */
const STATELESS_LIFE_MS = 1000;
/** Minimum timeout of a call to the nodes; a caller may stop waiting earlier. */
const SHORTEST_CALL_MS = 1000;
/** Types inside an Any that are looked up for one reply. */
const MAX_LOOKUPS = 100;

/** Limits on concurrent calls to nodes and the memory of their keys. */
const SINGLE_FLIGHT_LIMITS = {
  total: { calls: 4096, keyBytes: 32 * 1024 * 1024 },
  perCaller: { calls: 1024, keyBytes: 8 * 1024 * 1024 },
};

interface QueryServiceOptions {
  readonly pool: NodePool;
  readonly blocks: BlockWatch;
  readonly typeLookup: TypeLookup;
  readonly cacheBytes: number;
  readonly metrics: Metrics;
  /** Of the messages that nodes send. */
  readonly memory: ReplyMemory;
  readonly maxJsonBytes: number;
  /** Maximum timeout of a call to the nodes. */
  readonly longestMs: number;
}

/** Who waits for a reply. */
interface Asker {
  readonly caller: QueryCaller;
  readonly onGone: OnGone | undefined;
}

/** Runs queries: from the cache while the chain has not changed, otherwise by one shared call to a node. */
export class QueryService {
  readonly cache: ReplyCache;
  private readonly singleFlight = new SingleFlight<Reply>(SINGLE_FLIGHT_LIMITS);
  private readonly waiters: BlockWaiters;
  private unshared = 0;

  constructor(private readonly options: QueryServiceOptions) {
    this.waiters = new BlockWaiters(options.pool, options.blocks);
    this.cache = new ReplyCache(options.cacheBytes);
    options.blocks.on('reset', () => this.cache.clear());
  }

  /** Returns cached replies synchronously, unless a new block may have arrived. */
  answer(query: Query, caller: QueryCaller, onGone?: OnGone): Reply | Promise<Reply> {
    if (query.minHeight !== undefined)
      return this.answerFrom(query.minHeight, query, caller, onGone);
    const key = this.buildKey(query);
    const known = this.find(query, key);
    if (!known) return this.ask(query, key, { caller, onGone });
    const check = query.height === undefined ? this.options.blocks.confirm() : undefined;
    if (!check) return this.hit(known);
    return check.then(() => {
      const newKey = this.buildKey(query);
      const still = this.find(query, newKey);
      return still ? this.hit(still) : this.ask(query, newKey, { caller, onGone });
    });
  }

  /** Waits until the chain has reached a height; throws 504 if it has not in time. */
  async waitForBlock(options: MinHeightOptions): Promise<void> {
    const request = new MinHeightRequest(this.waiters, options);
    try {
      await request.waitForBlock();
    } finally {
      request.end();
    }
  }

  /** Answers once the chain has reached a height, from that height on. */
  private async answerFrom(
    minHeight: number,
    query: Query,
    caller: QueryCaller,
    onGone: OnGone | undefined,
  ): Promise<Reply> {
    const { timeoutMs } = query;
    const request = new MinHeightRequest(this.waiters, { minHeight, timeoutMs, caller, onGone });
    try {
      for (;;) {
        await request.waitForBlock();
        const reply = await this.answer({ ...query, minHeight: undefined }, caller, request.onGone);
        if (query.height !== undefined || (reply.height ?? minHeight) >= minHeight) return reply;
        await request.waitForNode();
      }
    } finally {
      request.end();
    }
  }

  private hit(reply: Reply): Reply {
    this.options.metrics.countCache('hit');
    return reply;
  }

  /** The key for the height of a query; undefined while no node is available, since the latest block is unknown. */
  private buildKey(query: Query): string | undefined {
    const height = query.height ?? this.options.pool.latest;
    return height === 0 ? undefined : buildKey(query, height);
  }

  private find({ isFresh, metadata }: Query, key: string | undefined): Reply | undefined {
    return isFresh || metadata || key === undefined ? undefined : this.cache.get(key);
  }

  private ask(query: Query, key: string | undefined, asker: Asker): Promise<Reply> {
    const { outcome, leave } = this.join(query, asker.caller, key);
    asker.onGone?.(leave);
    const { timeoutMs } = query;
    return timeoutMs < this.callTimeout(timeoutMs)
      ? awaitUntil(timeoutMs, { outcome, leave })
      : outcome;
  }

  /** Joins the call for the same query, or starts one. */
  private join(
    query: Query,
    { name, address: owner = name }: QueryCaller,
    key = buildKey(query, 0),
  ): SharedResult<Reply> {
    const flightKey = this.buildFlightKey(query, key);
    const isShared = this.singleFlight.isRunning(flightKey);
    const exceeded = isShared ? undefined : this.singleFlight.findExceeded(flightKey, owner);
    if (exceeded !== undefined) throw tooBusy(exceeded);
    this.options.metrics.countCache(isShared ? 'shared' : 'miss');
    return this.singleFlight.share(flightKey, owner, (signal) =>
      this.fetch(query, key, { signal, owner }),
    );
  }

  private buildFlightKey({ metadata, timeoutMs }: Query, key: string): string {
    if (metadata) {
      // Metadata may change the reply, so such a call is not shared.
      this.unshared += 1;
      return `${key}#${this.unshared}`;
    }
    const callMs = this.callTimeout(timeoutMs);
    return callMs === this.options.longestMs ? key : `${key}!${callMs}`;
  }

  /**
   * The timeout of the shared call: one of a few values, so that timeouts chosen by clients cannot
   * multiply the calls for one query.
   */
  private callTimeout(timeoutMs: number): number {
    const { longestMs } = this.options;
    if (timeoutMs >= longestMs) return longestMs;
    const doublings = Math.max(0, Math.ceil(Math.log2(timeoutMs / SHORTEST_CALL_MS)));
    return Math.min(longestMs, SHORTEST_CALL_MS * 2 ** doublings);
  }

  private async fetch(query: Query, key: string, owner: CallOwner): Promise<Reply> {
    const { pool, blocks, memory } = this.options;
    const { route, group, height, metadata } = query;
    const timeoutMs = this.callTimeout(query.timeoutMs);
    const endsAt = performance.now() + timeoutMs;
    const call = { ...owner, height, timeoutMs, metadata };
    const upstreamReply = await pool.call(group.nodes, route.grpcMethod, query.message, call);
    const { message } = upstreamReply;
    if (query.isPageCapped && route.hasNextPage(message)) throw pageTooLarge();
    const written = this.write(query, message, endsAt);
    const reply = new Reply({
      body: written instanceof Promise ? await written : written,
      etag: computeEtag(message, group.schema.fingerprint),
      height: upstreamReply.height ?? height,
    });
    memory.recycle(message);
    this.keep(query, key, reply);
    blocks.notice();
    return reply;
  }

  /** Keeps a reply under its own height: the node may have reached a new block during the call. */
  private keep(query: Query, key: string, reply: Reply): void {
    const { metadata, route } = query;
    if (metadata || reply.height === undefined) return;
    const own = key.endsWith(`=${reply.height}`) ? key : buildKey(query, reply.height);
    this.cache.set(own, reply, route.isState ? undefined : STATELESS_LIFE_MS);
  }

  private write(query: Query, message: Uint8Array, endsAt: number): Buffer | Promise<Buffer> {
    if (message.length >= STEPS_FROM_BYTES) return this.writeLookingUp(query, message, endsAt);
    try {
      return query.route.write(message);
    } catch (error) {
      if (!(error instanceof UnknownTypeError || error instanceof LongJsonError)) throw error;
      return this.writeLookingUp(query, message, endsAt);
    }
  }

  /** Looks up types that occur inside an Any and that the schema lacks. */
  private async writeLookingUp(
    { route, group }: Query,
    message: Uint8Array,
    endsAt: number,
  ): Promise<Buffer> {
    for (let lookups = 0; ; lookups += 1) {
      try {
        return await writeInSteps(route, message, this.options.maxJsonBytes);
      } catch (error) {
        if (!(error instanceof UnknownTypeError) || lookups === MAX_LOOKUPS) throw error;
        if (!(await this.options.typeLookup.resolve(group, error.typeName, endsAt))) throw error;
      }
    }
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

/** 429 if the caller has too many calls in progress, 503 if all callers together have. */
function tooBusy(limit: ExceededLimit): QueryError {
  const [code, what] =
    limit === 'key'
      ? [GrpcCode.resourceExhausted, 'too many of your queries']
      : [GrpcCode.unavailable, 'too many queries'];
  const text = `${what} are in progress; try again in a second`;
  return new QueryError(code, text, { headers: { 'Retry-After': '1' } });
}

const pageTooLarge = () =>
  badRequest(
    'pagination.limit is larger than this gateway allows, and there are more entries: request a smaller page, then the next by pagination.key',
  );

/**
 * The cache key of a query. It includes the route, which belongs to a schema and determines the JSON, and the height: a
 * reply about the latest block is one about its height.
 */
function buildKey({ route, message, isPageCapped }: Query, height: number): string {
  const bytes = Buffer.from(message.buffer, message.byteOffset, message.length).toString('latin1');
  return `${route.key}${isPageCapped ? '^' : ''}\n${bytes}=${height}`;
}

async function writeInSteps(route: Route, message: Uint8Array, maxBytes: number): Promise<Buffer> {
  const steps = route.writeInSteps(message, maxBytes);
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
    await setImmediate();
  }
}

/** One query of the chain. */
export interface Query {
  readonly route: Route;
  readonly group: SchemaGroup;
  /** The encoded request message. */
  readonly message: Uint8Array;
  /** Whether the limit of the page was lowered, so that the reply must be the last page. */
  readonly isPageCapped: boolean;
  /** Default: the latest block. */
  readonly height: number | undefined;
  /** The height that the chain must have reached, which is waited for. */
  readonly minHeight: number | undefined;
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
