import { RateLimiter, type RateVerdict } from '@sibyl/server-kit';
import type { HostBus } from '../bus/host-bus.js';

/** How long a host may collect what it has counted; arrives at the others well within 250 ms. */
const COLLECT_MS = 100;
/** So many keys are sent at once, since strangers choose how many there are. */
const MAX_COLLECTED = 200;

/** A limit that counts what all hosts have allowed. */
export class SharedLimiter {
  private readonly limiter = new RateLimiter();
  private readonly perMinute: number;
  private readonly record: (key: string, cost: number) => void;

  constructor(perMinute: number, record: (key: string, cost: number) => void) {
    this.perMinute = perMinute;
    this.record = record;
  }

  take(key: string, cost = 1): RateVerdict {
    const verdict = this.limiter.take(key, this.perMinute, cost);
    if (verdict.allowed) this.record(key, cost);
    return verdict;
  }

  refund(key: string, cost: number): void {
    this.limiter.refund(key, this.perMinute, cost);
    this.record(key, -cost);
  }

  /** What `take` would answer, without taking anything. */
  peek(key: string, cost = 1): RateVerdict {
    return this.limiter.peek(key, this.perMinute, cost);
  }

  /** Applies what another host has taken or refunded. */
  apply(key: string, cost: number): void {
    if (cost > 0) this.limiter.spend(key, this.perMinute, cost);
    else this.limiter.refund(key, this.perMinute, -cost);
  }
}

/** Sends what this host has counted to the others, and counts what they send. */
export class LimitExchange {
  private readonly bus: HostBus;
  private readonly limiters = new Map<string, SharedLimiter>();
  /** By kind and key, since the last message. */
  private readonly collected = new Map<string, Map<string, number>>();
  private size = 0;
  private timer: NodeJS.Timeout | undefined;

  constructor(bus: HostBus) {
    this.bus = bus;
    bus.on('limits', (counts) => {
      for (const [kind, entries] of Object.entries(counts))
        for (const [key, cost] of entries) this.limiters.get(kind)?.apply(key, cost);
    });
  }

  /** Creates a limiter; hosts share those of the same kind. */
  createLimiter(kind: string, perMinute: number): SharedLimiter {
    const limiter = new SharedLimiter(perMinute, (key, cost) => this.collect(kind, key, cost));
    this.limiters.set(kind, limiter);
    return limiter;
  }

  private collect(kind: string, key: string, cost: number): void {
    if (cost === 0) return;
    const counts = this.collected.get(kind) ?? new Map<string, number>();
    if (!counts.has(key)) this.size += 1;
    this.collected.set(kind, counts.set(key, (counts.get(key) ?? 0) + cost));
    if (this.size >= MAX_COLLECTED) this.send();
    else this.timer ??= setTimeout(() => this.send(), COLLECT_MS).unref();
  }

  private send(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.size = 0;
    const counts = [...this.collected].map(([kind, entries]) => [kind, [...entries]] as const);
    this.collected.clear();
    this.bus.send('others', 'limits', Object.fromEntries(counts));
  }
}
