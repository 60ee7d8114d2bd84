import { setImmediate } from 'node:timers/promises';
import { Flights } from '../cache/flights.js';
import { etagOf, Reply } from '../cache/reply.js';
import { ReplyCache } from '../cache/reply-cache.js';
import type { BlockWatch } from '../nodes/block-watch.js';
import type { NodePool } from '../nodes/node-pool.js';
import type { Metrics } from '../observe/metrics.js';
import type { Route } from '../schema.js';
import type { Question } from './question.js';

/** A message of this size takes a millisecond; larger ones are written in slices, so as not to hold up the others. */
const SLICED_FROM_BYTES = 128 * 1024;
/** What is no state of the chain, such as a node's own status, may change within a block. */
const STATELESS_LIFE_MS = 1000;

interface AnswersOptions {
  readonly pool: NodePool;
  readonly blocks: BlockWatch;
  readonly cacheBytes: number;
  readonly metrics: Metrics;
}

/** Answers questions: from memory while nothing can have changed, else from a node, asked once for all who wait. */
export class Answers {
  readonly cache: ReplyCache;
  private readonly flights = new Flights<Reply>();

  constructor(private readonly options: AnswersOptions) {
    this.cache = new ReplyCache(options.cacheBytes);
    let latest = 0;
    options.blocks.on('block', (height) => {
      // Heights that come again may be those of a chain that began anew.
      if (height < latest) this.cache.clear();
      latest = height;
    });
  }

  /** `onGone` is handed what is to be called if whoever asks leaves; at once the answer comes if it is known. */
  answer(question: Question, onGone?: (leave: () => void) => void): Reply | Promise<Reply> {
    const { metrics, pool } = this.options;
    const key = keyOf(question, pool.latest);
    // While no node answers, nobody knows whether the latest is still the latest.
    const known = question.isFresh || pool.latest === 0 ? undefined : this.cache.get(key);
    if (known) {
      metrics.countCache('hit');
      return known;
    }
    // One who gives up early must not make others do so.
    const flight = `${key}!${question.timeoutMs}`;
    metrics.countCache(this.flights.isRunning(flight) ? 'shared' : 'miss');
    return this.flights.share(flight, (signal) => this.ask(question, key, signal), onGone);
  }

  private async ask(question: Question, key: string, signal: AbortSignal): Promise<Reply> {
    const { pool, blocks } = this.options;
    const { route, group, message, height, metadata, timeoutMs } = question;
    const call = { height, metadata, timeoutMs, signal };
    const latest = pool.latest;
    const told = await pool.call(group.nodes, route.grpcMethod, message, call);
    const isFinal = height !== undefined && isState(route);
    const isLong = told.message.length >= SLICED_FROM_BYTES;
    const reply = new Reply({
      body: isLong ? await writeInSlices(route, told.message) : route.write(told.message),
      etag: etagOf(told.message, group.schema.fingerprint),
      height: told.height ?? height,
      isFinal,
    });
    // A node may be a block further than it was when the key was made.
    const isNewer = height === undefined && told.height !== undefined && told.height !== latest;
    const kept = isNewer ? keyOf(question, told.height) : key;
    this.cache.set(kept, reply, isState(route) ? undefined : STATELESS_LIFE_MS);
    blocks.notice();
    return reply;
  }
}

/** Modules keep their queries of the state in services called Query; those of the node are called Service. */
function isState({ grpcMethod }: Route): boolean {
  return grpcMethod.slice(0, grpcMethod.lastIndexOf('/')).endsWith('.Query');
}

/** What tells questions apart; the schema is part of it, since it makes the JSON, and the latest is a moment too. */
function keyOf({ route, group, message, metadata, height }: Question, latest: number): string {
  const bytes = Buffer.from(message.buffer, message.byteOffset, message.length).toString('latin1');
  const names = Object.keys(metadata);
  const extra = names.length === 0 ? '' : JSON.stringify(names.sort().map((n) => [n, metadata[n]]));
  const moment = height === undefined ? `~${latest}` : `=${height}`;
  return `${group.schema.fingerprint}${route.grpcMethod}\n${bytes.length}\n${bytes}${extra}${moment}`;
}

async function writeInSlices(route: Route, message: Uint8Array): Promise<Buffer> {
  const slices: Buffer[] = [];
  for (const slice of route.slices(message)) {
    slices.push(slice);
    await setImmediate();
  }
  return Buffer.concat(slices);
}
