interface Bucket {
  tokens: number;
  filledAt: number;
}

interface RateLimiterOptions {
  readonly capacity?: number;
  /** Milliseconds. */
  readonly now?: () => number;
}

/** Token buckets that refill evenly; a key that was not seen for a while costs no memory. */
export class RateLimiter {
  private readonly buckets = new Map<string, Bucket>();
  private readonly capacity: number;
  private readonly now: () => number;

  constructor({ capacity = 50_000, now = () => performance.now() }: RateLimiterOptions = {}) {
    this.capacity = capacity;
    this.now = now;
  }

  /** Counts some requests of a key; the seconds to wait if they are too many. */
  take(key: string, perMinute: number, count = 1): number | undefined {
    const bucket = this.refilled(key, perMinute);
    const missing = count - bucket.tokens;
    if (missing <= 0) bucket.tokens -= count;
    this.keep(key, bucket);
    return missing <= 0 ? undefined : Math.max(1, Math.ceil((missing / perMinute) * 60));
  }

  /** Whether a key has used all it had. */
  isSpent(key: string, perMinute: number): boolean {
    return this.refilled(key, perMinute).tokens < 1;
  }

  private refilled(key: string, perMinute: number): Bucket {
    const now = this.now();
    const { tokens, filledAt } = this.buckets.get(key) ?? { tokens: perMinute, filledAt: now };
    const gained = ((now - filledAt) / 60_000) * perMinute;
    return { tokens: Math.min(perMinute, tokens + gained), filledAt: now };
  }

  /** The key counted longest ago goes first: it has refilled the most. */
  private keep(key: string, bucket: Bucket): void {
    this.buckets.delete(key);
    this.buckets.set(key, bucket);
    if (this.buckets.size <= this.capacity) return;
    const [oldest] = this.buckets.keys();
    if (oldest !== undefined) this.buckets.delete(oldest);
  }
}
