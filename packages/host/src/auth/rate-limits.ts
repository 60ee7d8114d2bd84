import { OracleError } from '@sibyl/protocol';
import { addressKey, RateLimiter, type RateVerdict } from '@sibyl/server-kit';
import type { Metrics } from '../observe/metrics.js';
import type { Caller } from './caller.js';

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
  private readonly perMinute: { readonly anonymous: number; readonly caller: number };
  private readonly anonymous = new RateLimiter();
  private readonly callers = new RateLimiter();
  private readonly addresses = new RateLimiter();

  constructor({ perCaller, anonymous, metrics }: RateLimitsOptions) {
    this.metrics = metrics;
    this.perMinute = { anonymous, caller: perCaller };
  }

  /** Counts a request without a proven caller; refuses an address that has used up what it may ask so. */
  async takeAnonymous(address: string | undefined, headers = nowhere): Promise<void> {
    this.enforce(
      'anonymous',
      this.anonymous.take(addressKey(address), this.perMinute.anonymous),
      headers,
    );
  }

  /** Whether an address has failed too often for keys to be looked up on its behalf. */
  async isExhausted(address: string | undefined): Promise<boolean> {
    return !this.anonymous.peek(addressKey(address), this.perMinute.anonymous).allowed;
  }

  /** Counts a request of a proven caller. */
  async takeCaller(
    { did }: Pick<Caller, 'did'>,
    address: string | undefined,
    headers = nowhere,
  ): Promise<void> {
    const { caller } = this.perMinute;
    const everybody = this.addresses.take(addressKey(address), caller * CALLERS_PER_ADDRESS);
    this.enforce('address', everybody, headers);
    this.enforce('caller', this.callers.take(did, caller), headers);
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
