import type { ServerResponse } from 'node:http';
import { GrpcCode } from '@sibyl/grpc-client';
import type { ByteBudget } from '@sibyl/server-kit';
import { type Caller, getMemoryKey } from '../auth/gate.js';
import type { BlockWatch } from '../nodes/block-watch.js';
import type { NodePool } from '../nodes/node-pool.js';
import { CallerSlots } from '../query/block-waiters.js';
import { QueryError, toQueryError } from '../query/query-error.js';
import type { Query, QueryService } from '../query/query-service.js';
import type { Reply } from '../query/reply-cache.js';
import type { SchemaGroup, SchemaRegistry } from '../schema/schema-registry.js';
import { formatError, type RequestContext } from './request-context.js';

const HEARTBEAT_MS = 15_000;
const RETRY_SECONDS = 30;

interface WatchesOptions {
  readonly queryService: QueryService;
  readonly blocks: BlockWatch;
  readonly pool: NodePool;
  readonly schemaRegistry: SchemaRegistry;
  /** The memory of updates that clients have not received yet. */
  readonly outgoing: ByteBudget;
  readonly max: number;
  readonly maxPerCaller: number;
  /** How long a client may receive nothing before it is disconnected. */
  readonly stallMs: number;
}

/** The clients that receive an event when the reply to their query changes. */
export class Watches {
  private readonly running = new Set<Watch>();
  private readonly slots: CallerSlots;

  constructor(private readonly options: WatchesOptions) {
    const { max, maxPerCaller } = options;
    this.slots = new CallerSlots({
      max,
      maxPerCaller,
      callerMessage: `you have reached the limit of ${maxPerCaller} watches; close one first`,
      totalMessage: 'too many clients are watching; try again later',
      retrySeconds: RETRY_SECONDS,
    });
  }

  get size(): number {
    return this.running.size;
  }

  /** Sends events until the client disconnects, is too slow or its credentials expire. */
  begin(context: RequestContext, query: Query, caller: Caller): void {
    const { expiresAt } = caller;
    const release = this.slots.acquire(caller);
    const { response, request } = context;
    response.once('close', release);
    context.begin(200, {
      'Content-Type': 'text/event-stream',
      'Cache-Control': 'no-cache, no-transform',
      'X-Accel-Buffering': 'no',
      Connection: 'close',
    });
    // The watch has its own limit for stalled clients. Afterwards the connection would have none, so it is closed.
    request.socket.setTimeout(0);
    response.flushHeaders();
    const watch = new Watch({ response, query, caller, expiresAt }, this.options);
    this.running.add(watch);
    const expiry =
      expiresAt === undefined ? undefined : setTimeout(() => watch.end(), expiresAt - Date.now());
    response.once('close', () => {
      clearTimeout(expiry);
      watch.stop();
      this.running.delete(watch);
    });
  }

  /** Ends all watches; clients may reconnect to another process. */
  close(): void {
    for (const watch of this.running) watch.end();
  }
}

interface WatchTarget {
  readonly response: ServerResponse;
  readonly query: Query;
  readonly caller: Caller;
  /** When the caller's credentials expire, in Unix milliseconds. */
  readonly expiresAt: number | undefined;
}

class Watch {
  private readonly heartbeat: NodeJS.Timeout;
  private readonly onBlock = () => void this.update();
  private readonly response: ServerResponse;
  private sent = '';
  private isAsking = false;
  private isOutdated = false;
  private stall: NodeJS.Timeout | undefined;
  private release = () => {};
  /** Leaves the query in progress. */
  private leave = () => {};

  constructor(
    private readonly deps: WatchTarget,
    private readonly options: WatchesOptions,
  ) {
    this.response = deps.response;
    options.blocks.on('block', this.onBlock);
    this.heartbeat = setInterval(() => this.beat(), HEARTBEAT_MS);
    this.response.on('drain', () => {
      clearTimeout(this.stall);
      if (this.isOutdated) this.onBlock();
    });
    this.onBlock();
  }

  stop(): void {
    clearInterval(this.heartbeat);
    clearTimeout(this.stall);
    this.release();
    this.leave();
    this.options.blocks.off('block', this.onBlock);
  }

  /** Sends nothing more; a client that does not read the rest is disconnected. */
  end(): void {
    clearInterval(this.heartbeat);
    this.leave();
    this.options.blocks.off('block', this.onBlock);
    this.response.end();
    this.limitStall();
  }

  private limitStall(): void {
    clearTimeout(this.stall);
    this.stall = setTimeout(() => this.response.destroy(), this.options.stallMs);
  }

  /** Sends the current reply if it differs from the last one sent; a slow client misses the ones in between. */
  private async update(): Promise<void> {
    this.isOutdated = true;
    if (this.isAsking || this.isSlow()) return;
    this.isAsking = true;
    while (this.isOutdated && !this.isSlow()) {
      this.isOutdated = false;
      await this.sendChange();
    }
    this.isAsking = false;
  }

  private async sendChange(): Promise<void> {
    const { queryService, pool } = this.options;
    const { query, caller, expiresAt } = this.deps;
    // The expiry timer does not notice changes of the wall clock.
    if (expiresAt !== undefined && expiresAt <= Date.now()) return this.end();
    // Without a group, the client reconnects and gets the new schema.
    const group = this.findGroup();
    if (!group) return this.end();
    try {
      const onGone = (leave: () => void) => {
        this.leave = leave;
      };
      this.sendReply(await queryService.answer({ ...query, group }, caller, onGone));
    } catch (error) {
      const context = { pool, height: undefined, compat: undefined };
      const queryError =
        toQueryError(error, context) ?? new QueryError(GrpcCode.internal, 'failed');
      const data = formatError(queryError);
      this.send('error', { tag: data, data: Buffer.from(data), height: undefined });
    }
  }

  /** Undefined if no node serves the schema, or if only nodes of another one have the latest block. */
  private findGroup(): SchemaGroup | undefined {
    const { schemaRegistry, pool } = this.options;
    const { groups } = schemaRegistry;
    const { group, route } = this.deps.query;
    const own = groups.find(({ schema }) => schema === group.schema);
    const hasLatest = ({ nodes }: SchemaGroup) =>
      nodes.some((node) => pool.isUsable(node, undefined));
    if (!own || hasLatest(own)) return own;
    const isServed = ({ schema }: SchemaGroup) => schema.findRoute(route.grpcMethod)?.isServed;
    return groups.some((other) => hasLatest(other) && isServed(other)) ? undefined : own;
  }

  private sendReply({ body, etag, height }: Reply): void {
    if (etag !== this.sent) this.send('update', { tag: etag, data: body, height });
  }

  private send(event: string, { tag, data, height }: Change): void {
    const { response } = this;
    if (tag === this.sent || response.writableEnded || response.destroyed) return;
    if (!this.reserve(data)) return void response.destroy();
    this.sent = tag;
    const id = height === undefined ? '' : `id: ${height}\n`;
    response.write(`event: ${event}\n${id}data: `);
    response.write(inOneEvent(data));
    const isTaken = response.write('\n\n', this.release);
    if (!isTaken) this.limitStall();
  }

  /** A client whose updates exceed the memory limit is disconnected; it may reconnect. */
  private reserve(data: Buffer): boolean {
    this.release();
    const key = getMemoryKey(this.deps.caller);
    const { ok: release } = this.options.outgoing.reserveShared(key, data);
    this.release = release ?? (() => {});
    return release !== undefined;
  }

  private isSlow(): boolean {
    return this.response.writableNeedDrain || this.response.destroyed;
  }

  /** A client with unread data needs no heartbeat. */
  private beat(): void {
    if (this.isSlow()) return;
    const isTaken = this.response.write(': heartbeat\n\n');
    if (!isTaken) this.limitStall();
  }
}

interface Change {
  /** Equal for equal changes. */
  readonly tag: string;
  readonly data: Buffer;
  readonly height: number | undefined;
}

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;

/** Each line of an event needs a prefix; replies are nearly always one line and sent unchanged. */
function inOneEvent(data: Buffer): Buffer {
  if (!data.includes(LINE_FEED) && !data.includes(CARRIAGE_RETURN)) return data;
  return Buffer.from(data.toString().replaceAll(/\r\n|\r|\n/g, '\ndata: '));
}
