/** Whether one more request fits, and the figures of the `RateLimit-*` headers. */
export interface RateVerdict {
  readonly allowed: boolean;
  readonly limit: number;
  readonly remaining: number;
  readonly resetSeconds: number;
}

/** Counts requests by key. */
export interface RateLimiter {
  /** Counts one request of `key`. */
  take(key: string): Promise<RateVerdict>;
  /** Tells how `key` stands without counting. */
  look(key: string): Promise<RateVerdict>;
}

interface Bucket {
  tokens: number;
  filledAt: number;
}

interface RateLimiterOptions {
  readonly perMinute: number;
  readonly capacity?: number;
  /** Milliseconds. */
  readonly now?: () => number;
}

/** Token buckets that refill evenly; a key that was not seen for a while costs no memory. */
export class MemoryRateLimiter implements RateLimiter {
  private readonly buckets = new Map<string, Bucket>();
  private readonly perMinute: number;
  private readonly capacity: number;
  private readonly now: () => number;

  constructor({ perMinute, capacity = 50_000, now = Date.now }: RateLimiterOptions) {
    this.perMinute = perMinute;
    this.capacity = capacity;
    this.now = now;
  }

  async take(key: string): Promise<RateVerdict> {
    const bucket = this.refilled(key);
    const allowed = bucket.tokens >= 1;
    if (allowed) bucket.tokens -= 1;
    this.keep(key, bucket);
    return this.verdictOf(bucket, allowed);
  }

  async look(key: string): Promise<RateVerdict> {
    const bucket = this.refilled(key);
    return this.verdictOf(bucket, bucket.tokens >= 1);
  }

  private refilled(key: string): Bucket {
    const now = this.now();
    const { tokens, filledAt } = this.buckets.get(key) ?? { tokens: this.perMinute, filledAt: now };
    const gained = ((now - filledAt) / 60_000) * this.perMinute;
    return { tokens: Math.min(this.perMinute, tokens + gained), filledAt: now };
  }

  /** The least recently counted key goes first: it has refilled the most. */
  private keep(key: string, bucket: Bucket): void {
    this.buckets.delete(key);
    this.buckets.set(key, bucket);
    if (this.buckets.size <= this.capacity) return;
    const [oldest] = this.buckets.keys();
    if (oldest !== undefined) this.buckets.delete(oldest);
  }

  private verdictOf({ tokens }: Bucket, allowed: boolean): RateVerdict {
    const missing = allowed ? this.perMinute - tokens : 1 - tokens;
    return {
      allowed,
      limit: this.perMinute,
      remaining: Math.floor(tokens),
      resetSeconds: Math.max(1, Math.ceil((missing / this.perMinute) * 60)),
    };
  }
}
