import type { ServerResponse } from 'node:http';
import { GrpcCode } from '@sibyl/grpc-client';
import type { Caller } from '../auth/gate.js';
import type { BlockWatch } from '../nodes/block-watch.js';
import type { NodePool } from '../nodes/node-pool.js';
import { explainFault, QueryFault } from '../query/query-error.js';
import type { Answers, Question } from '../query/query-service.js';
import type { Reply } from '../query/reply-cache.js';
import type { ByteBudget } from './byte-budget.js';
import { bodyOf, type Exchange } from './request-context.js';

const HEARTBEAT_MS = 15_000;
const RETRY_SECONDS = '30';

interface WatchesOptions {
  readonly answers: Answers;
  readonly blocks: BlockWatch;
  readonly pool: NodePool;
  /** The memory of updates that readers have not taken yet. */
  readonly outgoing: ByteBudget;
  readonly max: number;
  readonly maxPerCaller: number;
  /** How long a reader may take nothing before it is dropped. */
  readonly stallMs: number;
}

/** The clients that receive an event when the answer to their question changes. */
export class Watches {
  private readonly running = new Set<Watch>();
  private readonly byCaller = new Map<string, number>();

  constructor(private readonly options: WatchesOptions) {}

  get size(): number {
    return this.running.size;
  }

  /** Sends events until the client leaves, is too slow or its right to ask ends. */
  begin(exchange: Exchange, question: Question, caller: Caller): void {
    const { name, address = name, expiresAt } = caller;
    const release = this.acquire(new Set([name, `address ${address}`]));
    const { response, request } = exchange;
    response.once('close', release);
    exchange.begin(200, {
      'Content-Type': 'text/event-stream',
      'Cache-Control': 'no-cache, no-transform',
      'X-Accel-Buffering': 'no',
    });
    // The limit on stalled readers is the watch's own.
    request.socket.setTimeout(0);
    response.flushHeaders();
    const watch = new Watch({ response, question, caller, expiresAt }, this.options);
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

  private acquire(keys: ReadonlySet<string>): () => void {
    const { max, maxPerCaller } = this.options;
    for (const key of keys)
      if (this.count(key) >= maxPerCaller) throw tooManyOfCaller(maxPerCaller);
    if (this.size >= max) throw tooManyWatchers();
    for (const key of keys) this.byCaller.set(key, this.count(key) + 1);
    return () => {
      for (const key of keys) {
        if (this.count(key) > 1) this.byCaller.set(key, this.count(key) - 1);
        else this.byCaller.delete(key);
      }
    };
  }

  private count(key: string): number {
    return this.byCaller.get(key) ?? 0;
  }
}

interface WatchParts {
  readonly response: ServerResponse;
  readonly question: Question;
  readonly caller: Caller;
  /** When the caller's right to ask ends, in milliseconds of the wall clock. */
  readonly expiresAt: number | undefined;
}

class Watch {
  private readonly heartbeat: NodeJS.Timeout;
  private readonly tell = () => void this.update();
  private readonly response: ServerResponse;
  private sent = '';
  private isAsking = false;
  private isOutdated = false;
  private stall: NodeJS.Timeout | undefined;
  private release = () => {};

  constructor(
    private readonly parts: WatchParts,
    private readonly options: WatchesOptions,
  ) {
    this.response = parts.response;
    options.blocks.on('block', this.tell);
    this.heartbeat = setInterval(() => this.beat(), HEARTBEAT_MS);
    this.response.on('drain', () => {
      clearTimeout(this.stall);
      if (this.isOutdated) this.tell();
    });
    this.tell();
  }

  stop(): void {
    clearInterval(this.heartbeat);
    clearTimeout(this.stall);
    this.release();
    this.options.blocks.off('block', this.tell);
  }

  end(): void {
    this.stop();
    this.response.end();
  }

  /** Sends the current state if it differs from the last one sent; a slow reader misses states in between. */
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
    const { answers, pool } = this.options;
    const { question, expiresAt } = this.parts;
    // The timer of the expiry does not notice when the wall clock is set forward.
    if (expiresAt !== undefined && expiresAt <= Date.now()) return this.end();
    try {
      this.sendReply(await answers.answer(question));
    } catch (fault) {
      const context = { pool, height: undefined, compat: undefined };
      const told = explainFault(fault, context) ?? new QueryFault(GrpcCode.internal, 'failed');
      const data = JSON.stringify(bodyOf(told));
      this.send('error', { tag: data, data: Buffer.from(data), height: undefined });
    }
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
    if (isTaken) return;
    this.stall = setTimeout(() => response.destroy(), this.options.stallMs);
  }

  /** A reader whose updates do not fit into memory is dropped; it may reconnect and read faster. */
  private reserve(data: Buffer): boolean {
    this.release();
    try {
      this.release = this.options.outgoing.reserveShared(this.parts.caller.name, data);
      return true;
    } catch (fault) {
      if (fault instanceof QueryFault) return false;
      throw fault;
    }
  }

  private isSlow(): boolean {
    return this.response.writableNeedDrain || this.response.destroyed;
  }

  /** A reader that has not taken what it got needs no sign of life. */
  private beat(): void {
    if (!this.isSlow()) this.response.write(': heartbeat\n\n');
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

/** An event's data has a prefix on each line; a reply is nearly always one line, and is sent as it is. */
function inOneEvent(data: Buffer): Buffer {
  if (!data.includes(LINE_FEED) && !data.includes(CARRIAGE_RETURN)) return data;
  return Buffer.from(data.toString().replaceAll(/\r\n|\r|\n/g, '\ndata: '));
}

function tooManyOfCaller(max: number): QueryFault {
  const text = `you are watching ${max} queries already, which is the limit; close one first`;
  return new QueryFault(GrpcCode.resourceExhausted, text, {
    headers: { 'Retry-After': RETRY_SECONDS },
  });
}

function tooManyWatchers(): QueryFault {
  const text = 'too many clients are watching; ask again later';
  return new QueryFault(GrpcCode.unavailable, text, { headers: { 'Retry-After': RETRY_SECONDS } });
}
