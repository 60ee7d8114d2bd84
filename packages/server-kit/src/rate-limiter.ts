import { isIP, isIPv6 } from 'node:net';
import { LruMap, textBytes } from '@sibyl/protocol/lru-map';

/** Whether a request is allowed, and the figures of the `RateLimit-*` headers. */
export interface RateVerdict {
  readonly allowed: boolean;
  readonly limit: number;
  readonly remaining: number;
  /** When the bucket is full again, or, for a refused request, when to retry. */
  readonly resetSeconds: number;
}

interface Bucket {
  tokens: number;
  filledAt: number;
}

export interface RateLimiterOptions {
  /** How long an empty bucket takes to be full again; a minute by default. */
  readonly windowMs?: number;
  /** What all buckets together may take in memory. */
  readonly maxBytes?: number;
  /** Milliseconds of a monotonic clock. */
  readonly now?: () => number;
}

const BUCKET_BYTES = 64;

/** Token buckets that refill evenly. Not a timer per key: a bucket is refilled when it is used. */
export class RateLimiter {
  private readonly buckets: LruMap<string, Bucket>;
  private readonly now: () => number;
  private readonly windowMs: number;

  constructor({
    windowMs = 60_000,
    maxBytes = 8 * 1024 * 1024,
    now = () => performance.now(),
  }: RateLimiterOptions = {}) {
    // The least recently used bucket makes room: it has refilled the most.
    this.buckets = new LruMap({ maxBytes, measure: (_, key) => textBytes(key) + BUCKET_BYTES });
    this.now = now;
    this.windowMs = windowMs;
  }

  /** Takes `cost` tokens from the bucket of `key`, which holds `limit`, if it has that many. */
  take(key: string, limit: number, cost = 1): RateVerdict {
    const bucket = this.open(key, limit);
    const allowed = bucket.tokens >= cost;
    if (allowed) bucket.tokens -= cost;
    return this.judge({ tokens: bucket.tokens, limit, cost, allowed });
  }

  /** Gives tokens back, for a charge that turned out not to be due. */
  refund(key: string, limit: number, cost = 1): void {
    const bucket = this.open(key, limit);
    bucket.tokens = Math.min(limit, bucket.tokens + cost);
  }

  /** Takes tokens that were used elsewhere, even if the bucket has fewer: it then refills from below zero. */
  spend(key: string, limit: number, cost: number): void {
    const bucket = this.open(key, limit);
    // A debt of more than one bucket would punish callers for errors in counting.
    bucket.tokens = Math.max(-limit, bucket.tokens - cost);
  }

  /** What `take` would answer, without taking anything. */
  peek(key: string, limit: number, cost = 1): RateVerdict {
    const bucket = this.buckets.get(key);
    const tokens = bucket ? this.countTokens(bucket, limit, this.now()) : limit;
    return this.judge({ tokens, limit, cost, allowed: tokens >= cost });
  }

  /** The bucket of a key, filled until now. */
  private open(key: string, limit: number): Bucket {
    const now = this.now();
    const known = this.buckets.get(key);
    const bucket = known ?? { tokens: limit, filledAt: now };
    bucket.tokens = this.countTokens(bucket, limit, now);
    bucket.filledAt = now;
    if (!known) this.buckets.set(key, bucket);
    return bucket;
  }

  /** The tokens of a bucket at a time. */
  private countTokens({ tokens, filledAt }: Bucket, limit: number, now: number): number {
    const gained = (Math.max(0, now - filledAt) / this.windowMs) * limit;
    return Math.min(limit, tokens + gained);
  }

  private judge({ tokens, limit, cost, allowed }: Standing): RateVerdict {
    const missing = allowed ? limit - tokens : cost - tokens;
    return {
      allowed,
      limit,
      remaining: Math.max(0, Math.floor(tokens)),
      resetSeconds: Math.max(1, Math.ceil(((missing / limit) * this.windowMs) / 1000)),
    };
  }
}

interface Standing {
  readonly tokens: number;
  readonly limit: number;
  readonly cost: number;
  readonly allowed: boolean;
}

/** `1.2.3.4:5678` and `[2001:db8::1]:5678`, as some proxies write addresses. */
const WITH_PORT = /^(?:\[([^\]]+)\]|(\d+\.\d+\.\d+\.\d+))(?::\d+)?$/;

/** The address that a proxy wrote, without a port; undefined if it is none. */
export function readForwardedAddress(text: string): string | undefined {
  const [, bracketed, dotted] = WITH_PORT.exec(text) ?? [];
  const address = bracketed ?? dotted ?? text;
  return isIP(address) ? address : undefined;
}

/**
 * The key an address is limited by: one IPv6 customer holds a whole /64. Ports are left out, and everything that is not an
 * address has one key: clients must not choose theirs.
 */
export function toAddressKey(text: string | undefined): string {
  const address = readForwardedAddress(text ?? '');
  if (!address) return 'unknown';
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped) return mapped;
  if (!isIPv6(address)) return address;
  const network = expand(address).slice(0, 4);
  return `${network.map((part) => Number.parseInt(part, 16).toString(16)).join(':')}::/64`;
}

function expand(address: string): string[] {
  const [head = '', tail] = address.split('%', 1)[0]?.split('::') ?? [];
  const left = head.split(':').filter(Boolean);
  if (tail === undefined) return left;
  const right = tail.split(':').filter(Boolean);
  return [...left, ...Array<string>(8 - left.length - right.length).fill('0'), ...right];
}
