import { hash } from 'node:crypto';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import type { CancelSignal } from '@sibyl/grpc-client';
import { type ExceededLimit, LruMap, textBytes } from '@sibyl/server-kit';

/** Overhead of an entry: objects, tag and two buffers. */
const ENTRY_BYTES = 512;

/** Cached replies by query, limited in bytes; evicts the least recently used. */
export class ReplyCache {
  private readonly entries: LruMap<string, Reply>;

  constructor(private readonly maxBytes: number) {
    this.entries = new LruMap({
      maxBytes,
      measure: (reply, key) => ENTRY_BYTES + textBytes(key) + reply.bytes,
    });
  }

  get bytes(): number {
    return this.entries.bytes;
  }

  get size(): number {
    return this.entries.size;
  }

  get(key: string): Reply | undefined {
    const reply = this.entries.get(key);
    if (!reply) return undefined;
    if (reply.expiresAt === undefined || reply.expiresAt > performance.now()) return reply;
    this.entries.delete(key);
    return undefined;
  }

  /** Stores a reply, optionally with a lifetime. */
  set(key: string, reply: Reply, lifeMs?: number): void {
    // One reply must not evict all others.
    if (ENTRY_BYTES + textBytes(key) + reply.bytes > this.maxBytes / 4) {
      this.entries.delete(key);
      return;
    }
    reply.expiresAt = lifeMs === undefined ? undefined : performance.now() + lifeMs;
    reply.cache = this;
    reply.key = key;
    this.entries.set(key, reply);
  }

  /** Counts the new size of a reply that has grown. */
  recount(key: string, reply: Reply): void {
    if (this.entries.get(key) === reply) this.entries.set(key, reply);
  }

  clear(): void {
    this.entries.deleteWhere(() => true);
  }
}

/** Up to this size, copying a body costs less than a separate write. */
const SMALL_BYTES = 4096;

export type Encoding = 'gzip' | 'br';

/** From this size on, bodies are compressed less, in a fifth of the time. */
const LARGE_BYTES = 1024 * 1024;

const compress: Readonly<Record<Encoding, (body: Buffer) => Promise<Buffer>>> = {
  gzip: (body) => promisify(gzip)(body, { level: body.length < LARGE_BYTES ? 6 : 1 }),
  br: (body) => {
    const quality = body.length < LARGE_BYTES ? 4 : 1;
    return promisify(brotliCompress)(body, {
      params: { [constants.BROTLI_PARAM_QUALITY]: quality },
    });
  },
};

interface ReplyOptions {
  /** The reply's JSON. */
  readonly body: Buffer;
  /** Equal for equal bodies. */
  readonly etag: string;
  /** The block height, if known. */
  readonly height: number | undefined;
}

/** A serialized reply with its compressed forms. */
export class Reply {
  readonly etag: string;
  readonly height: number | undefined;
  /** The length of the body in bytes. */
  readonly length: number;
  /**
   * A small body as latin1 text, which is sent together with the headers. It is the only
   * copy, since a small buffer may keep a much larger memory slab alive.
   */
  readonly text: string | undefined;
  /** When the cache drops it, in milliseconds of `performance.now()`; unset: never. */
  expiresAt: number | undefined;
  /** Where it is cached. */
  cache: ReplyCache | undefined;
  key = '';
  private readonly large: Buffer | undefined;
  private encoded: Map<Encoding, Promise<Buffer>> | undefined;
  private encodedBytes = 0;

  constructor({ body, etag, height }: ReplyOptions) {
    const isSmall = body.length <= SMALL_BYTES;
    this.length = body.length;
    this.etag = etag;
    this.height = height;
    this.text = isSmall ? body.toString('latin1') : undefined;
    this.large = isSmall ? undefined : body;
  }

  get body(): Buffer {
    return this.large ?? Buffer.from(this.text ?? '', 'latin1');
  }

  /** The memory of the reply, compressed forms included. */
  get bytes(): number {
    return this.length + this.encodedBytes;
  }

  /** The compressed body, cached. */
  as(encoding: Encoding): Promise<Buffer> {
    return this.encoded?.get(encoding) ?? this.encode(encoding);
  }

  private encode(encoding: Encoding): Promise<Buffer> {
    const encoded = compress[encoding](this.body).then((bytes) => {
      this.encodedBytes += bytes.length;
      this.cache?.recount(this.key, this);
      return bytes;
    });
    this.encoded ??= new Map();
    this.encoded.set(encoding, encoded);
    return encoded;
  }
}

/** An ETag for the reply; weak, since compressed forms share it. */
export function computeEtag(message: Uint8Array, fingerprint: string): string {
  return `W/"${fingerprint.slice(0, 8)}${hash('sha1', message, 'base64url')}"`;
}

/** Cancels one call; an AbortController takes longer to create than a small query to bind. */
class Cancellation implements CancelSignal {
  aborted = false;
  private listener: (() => void) | undefined;

  /** Only one at a time. */
  addEventListener(_type: 'abort', listener: () => void): void {
    this.listener = listener;
  }

  removeEventListener(): void {
    this.listener = undefined;
  }

  abort(): void {
    this.aborted = true;
    this.listener?.();
  }
}

interface SharedCall<T> {
  readonly outcome: Promise<T>;
  /** Who has started it. */
  readonly caller: string;
  readonly cancel: Cancellation;
  waiting: number;
}

/** One caller's view of a shared call. */
export interface SharedResult<T> {
  readonly outcome: Promise<T>;
  /** Stops waiting; cancels the call if this was the last caller. May be called more than once. */
  leave(): void;
}

/** Limits on calls in progress and the memory of their keys. */
interface CallLimits {
  readonly calls: number;
  readonly keyBytes: number;
}

export interface SingleFlightLimits {
  readonly total: CallLimits;
  /** For the calls that one caller has started. */
  readonly perCaller: CallLimits;
}

const NO_CALLS: CallLimits = { calls: 0, keyBytes: 0 };

/** Shares one call between all concurrent callers with the same key. */
export class SingleFlight<T> {
  private readonly running = new Map<string, SharedCall<T>>();
  private total = NO_CALLS;
  private readonly byCaller = new Map<string, CallLimits>();

  constructor(private readonly limits: SingleFlightLimits) {}

  isRunning(key: string): boolean {
    return this.running.has(key);
  }

  /** The limit that a new call of a caller with this key would exceed, if any. */
  findExceeded(key: string, caller: string): ExceededLimit | undefined {
    const isFull = (used: CallLimits, max: CallLimits) =>
      used.calls >= max.calls || used.keyBytes + textBytes(key) > max.keyBytes;
    if (isFull(this.byCaller.get(caller) ?? NO_CALLS, this.limits.perCaller)) return 'key';
    return isFull(this.total, this.limits.total) ? 'total' : undefined;
  }

  /** Joins the call with this key, or starts one, which counts for the caller. */
  share(key: string, caller: string, start: (signal: CancelSignal) => Promise<T>): SharedResult<T> {
    const call = this.running.get(key) ?? this.begin(key, caller, start);
    call.waiting += 1;
    let isWaiting = true;
    const leave = () => {
      if (isWaiting) this.leave(key, call);
      isWaiting = false;
    };
    return { outcome: call.outcome, leave };
  }

  private begin(
    key: string,
    caller: string,
    start: (signal: CancelSignal) => Promise<T>,
  ): SharedCall<T> {
    const cancel = new Cancellation();
    const call = { outcome: start(cancel), caller, cancel, waiting: 0 };
    const end = () => this.end(key, call);
    call.outcome.then(end, end);
    this.running.set(key, call);
    this.count(caller, 1, textBytes(key));
    return call;
  }

  private leave(key: string, call: SharedCall<T>): void {
    call.waiting -= 1;
    if (call.waiting > 0 || this.running.get(key) !== call) return;
    // New callers must not join a canceled call.
    this.end(key, call);
    call.cancel.abort();
  }

  private end(key: string, call: SharedCall<T>): void {
    if (this.running.get(key) !== call) return;
    this.running.delete(key);
    this.count(call.caller, -1, -textBytes(key));
  }

  private count(caller: string, calls: number, keyBytes: number): void {
    const add = (used: CallLimits) => ({
      calls: used.calls + calls,
      keyBytes: used.keyBytes + keyBytes,
    });
    this.total = add(this.total);
    const own = add(this.byCaller.get(caller) ?? NO_CALLS);
    if (own.calls > 0) this.byCaller.set(caller, own);
    else this.byCaller.delete(caller);
  }
}
