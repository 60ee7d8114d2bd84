import { OracleError } from '@sibyl/protocol';
import type { Metrics } from '../observe/metrics.js';
import { addressKey } from './address.js';
import type { Caller } from './caller.js';
import { MemoryRateLimiter, type RateLimiter, type RateVerdict } from './rate-limiter.js';

/** Callers behind one address that may use their whole allowance at once: identities cost nothing. */
const CALLERS_PER_ADDRESS = 10;

interface RateLimitsOptions {
  readonly perCaller: number;
  readonly anonymous: number;
  readonly metrics: Metrics;
}

/** Where the figures of a limit are told; a socket has no such place. */
export interface HeaderSink {
  setHeader(name: string, value: number): unknown;
}

const nowhere: HeaderSink = { setHeader: () => undefined };

/** The host's limits: per address without a proven caller, per caller with one. */
export class RateLimits {
  private readonly metrics: Metrics;
  private readonly anonymous: RateLimiter;
  private readonly callers: RateLimiter;
  private readonly addresses: RateLimiter;

  constructor({ perCaller, anonymous, metrics }: RateLimitsOptions) {
    this.metrics = metrics;
    this.anonymous = new MemoryRateLimiter({ perMinute: anonymous });
    this.callers = new MemoryRateLimiter({ perMinute: perCaller });
    this.addresses = new MemoryRateLimiter({ perMinute: perCaller * CALLERS_PER_ADDRESS });
  }

  /** Counts a request without a proven caller; refuses an address that has used up what it may ask so. */
  async takeAnonymous(address: string | undefined, headers = nowhere): Promise<void> {
    this.enforce('anonymous', await this.anonymous.take(addressKey(address)), headers);
  }

  /** Whether an address has failed too often for keys to be looked up on its behalf. */
  async isExhausted(address: string | undefined): Promise<boolean> {
    return !(await this.anonymous.look(addressKey(address))).allowed;
  }

  /** Counts a request of a proven caller. */
  async takeCaller(
    { did }: Pick<Caller, 'did'>,
    address: string | undefined,
    headers = nowhere,
  ): Promise<void> {
    this.enforce('address', await this.addresses.take(addressKey(address)), headers);
    this.enforce('caller', await this.callers.take(did), headers);
  }

  private enforce(kind: string, verdict: RateVerdict, headers: HeaderSink): void {
    headers.setHeader('RateLimit-Limit', verdict.limit);
    headers.setHeader('RateLimit-Remaining', verdict.remaining);
    headers.setHeader('RateLimit-Reset', verdict.resetSeconds);
    if (verdict.allowed) return;
    this.metrics.count('sibyl_rate_limited_total', { kind });
    throw new OracleError('rate_limited', { retryAfterSeconds: verdict.resetSeconds });
  }
}
