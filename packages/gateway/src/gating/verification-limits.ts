import { RateLimiter } from '@sibyl/server-kit';
import type { Settle, VerificationCost } from '@sibyl/ucan';
import { busy, enforce, tooMany } from './refusals.js';

/** Failed attempts a minute of one address. */
const FAILURES_PER_MINUTE = 120;
/** Signatures, and KB of tokens, a minute of one address, where a token has more than a plain one. */
const UNITS_PER_MINUTE = 1200;
/** Reading this many characters of a token takes about as long as verifying a signature. */
const CHARACTERS_PER_UNIT = 1024;
/** DIDs looked up for one address. */
const LOOKUPS_PER_MINUTE = 300;
/** Verifications that wait for a lookup, of one address and of all. */
export const WAITING = { perAddress: 256, total: 1024 } as const;
const RETRY_SECONDS = 3;

/**
 * Limits what unproven callers cost. A plain token costs its address nothing in advance, only when it
 * fails, so that a valid caller does not suffer from its neighbors.
 */
export class VerificationLimits {
  private readonly failures = new RateLimiter();
  private readonly units = new RateLimiter();
  private readonly lookups = new RateLimiter();
  /** Verifications that wait for a lookup, by address; at most `WAITING.total` entries. */
  private readonly waiting = new Map<string, number>();
  private waitingTotal = 0;

  /** Counts a failed attempt; throws 429 if the address has failed too often. */
  countFailure(address: string): void {
    enforce(this.failures.take(address, FAILURES_PER_MINUTE));
  }

  /**
   * Takes what a verification costs, all of it or nothing, before the work begins; what was taken is
   * given back if the token is valid. Throws 429 for the limits of the address, 503 for that of all.
   */
  reserve(address: string, work: VerificationCost): Settle {
    const { lookups } = work;
    const units = measureExtraUnits(work);
    enforce(this.units.peek(address, UNITS_PER_MINUTE, units));
    enforce(this.lookups.peek(address, LOOKUPS_PER_MINUTE, lookups));
    const leave = lookups > 0 ? this.enter(address) : () => undefined;
    this.units.take(address, UNITS_PER_MINUTE, units);
    this.lookups.take(address, LOOKUPS_PER_MINUTE, lookups);
    return (isProven) => {
      leave();
      if (!isProven) return;
      this.units.refund(address, UNITS_PER_MINUTE, units);
      this.lookups.refund(address, LOOKUPS_PER_MINUTE, lookups);
    };
  }

  private enter(address: string): () => void {
    const count = this.waiting.get(address) ?? 0;
    if (count >= WAITING.perAddress) throw tooMany(RETRY_SECONDS);
    if (this.waitingTotal >= WAITING.total) throw busy(RETRY_SECONDS);
    this.waiting.set(address, count + 1);
    this.waitingTotal += 1;
    return () => this.leave(address);
  }

  private leave(address: string): void {
    const count = (this.waiting.get(address) ?? 1) - 1;
    this.waitingTotal -= 1;
    if (count > 0) this.waiting.set(address, count);
    else this.waiting.delete(address);
  }
}

/** What a token costs in advance; nothing for a plain one: one signature, less than 1 KB. */
function measureExtraUnits({ signatures, characters }: VerificationCost): number {
  const units = signatures + Math.floor(characters / CHARACTERS_PER_UNIT);
  return units > 1 ? units : 0;
}
