import type { ServerResponse } from 'node:http';
import type { BlockWatch } from '../nodes/block-watch.js';
import type { NodePool } from '../nodes/node-pool.js';
import type { Answers } from '../query/answers.js';
import { explainFault } from '../query/explain-fault.js';
import { QueryFault } from '../query/query-fault.js';
import type { Question } from '../query/question.js';
import { GrpcCode } from '../upstream/grpc-error.js';
import type { Exchange } from './exchange.js';
import { bodyOf } from './send-json.js';

const HEARTBEAT_MS = 15_000;

interface WatchesOptions {
  readonly answers: Answers;
  readonly blocks: BlockWatch;
  readonly pool: NodePool;
  readonly max: number;
  /** How long a reader may take nothing before it is dropped. */
  readonly stallMs: number;
}

/** The clients that are told when the answer to their question changes. */
export class Watches {
  private readonly running = new Set<Watch>();

  constructor(private readonly options: WatchesOptions) {}

  get size(): number {
    return this.running.size;
  }

  /** Begins to tell, until the client leaves, is too slow or may not ask any longer. */
  begin(exchange: Exchange, question: Question, expiresAt: number | undefined): void {
    if (this.size >= this.options.max) throw tooManyWatchers();
    const { response } = exchange;
    exchange.begin(200, {
      'Content-Type': 'text/event-stream',
      'Cache-Control': 'no-cache, no-transform',
      'X-Accel-Buffering': 'no',
    });
    response.flushHeaders();
    const watch = new Watch(response, question, this.options);
    this.running.add(watch);
    const expiry =
      expiresAt === undefined ? undefined : setTimeout(() => watch.end(), expiresAt - Date.now());
    response.once('close', () => {
      clearTimeout(expiry);
      watch.stop();
      this.running.delete(watch);
    });
  }

  /** Lets go of all, who may come back to another process. */
  close(): void {
    for (const watch of this.running) watch.end();
  }
}

class Watch {
  private readonly heartbeat: NodeJS.Timeout;
  private readonly tell = () => void this.update();
  private sent = '';
  private isAsking = false;
  private isOutdated = false;
  private stall: NodeJS.Timeout | undefined;

  constructor(
    private readonly response: ServerResponse,
    private readonly question: Question,
    private readonly options: WatchesOptions,
  ) {
    options.blocks.on('block', this.tell);
    this.heartbeat = setInterval(() => this.beat(), HEARTBEAT_MS);
    response.on('drain', () => {
      clearTimeout(this.stall);
      if (this.isOutdated) this.tell();
    });
    this.tell();
  }

  stop(): void {
    clearInterval(this.heartbeat);
    clearTimeout(this.stall);
    this.options.blocks.off('block', this.tell);
  }

  end(): void {
    this.stop();
    this.response.end();
  }

  /** Sends the state of now if it is another than the last one sent; states a slow reader missed are not made up for. */
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
    try {
      const { body, etag, height } = await answers.answer(this.question);
      this.send('update', { tag: etag, data: body.toString(), height });
    } catch (fault) {
      const context = { pool, height: undefined, compat: undefined };
      const told = explainFault(fault, context) ?? new QueryFault(GrpcCode.internal, 'failed');
      const data = JSON.stringify(bodyOf(told));
      this.send('error', { tag: data, data, height: undefined });
    }
  }

  private send(event: string, change: { tag: string; data: string; height: number | undefined }) {
    if (change.tag === this.sent || this.response.destroyed) return;
    this.sent = change.tag;
    const id = change.height === undefined ? '' : `id: ${change.height}\n`;
    const data = change.data.replaceAll(/\r\n|\r|\n/g, '\ndata: ');
    const isTaken = this.response.write(`event: ${event}\n${id}data: ${data}\n\n`);
    if (isTaken) return;
    this.stall = setTimeout(() => this.response.destroy(), this.options.stallMs);
  }

  private isSlow(): boolean {
    return this.response.writableNeedDrain || this.response.destroyed;
  }

  /** A reader that has not taken what it got needs no sign of life. */
  private beat(): void {
    if (!this.isSlow()) this.response.write(': heartbeat\n\n');
  }
}

function tooManyWatchers(): QueryFault {
  const text = 'too many clients are watching; ask again later';
  return new QueryFault(GrpcCode.unavailable, text, { headers: { 'Retry-After': '30' } });
}
