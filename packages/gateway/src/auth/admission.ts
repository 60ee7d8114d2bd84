import { GrpcCode } from '@sibyl/grpc-client';
import { RateLimiter } from '@sibyl/server-kit';
import type { Charge, Settle, VerificationCost, VerifyOptions } from '@sibyl/ucan';
import type { Config } from '../config/config.js';
import { QueryError } from '../query/query-error.js';
import type { Route } from '../schema/schema.js';
import {
  busy,
  type Caller,
  type Credentials,
  enforce,
  forbidden,
  type Gate,
  tooMany,
} from './gate.js';

/** Callers per address whose full limits the address allows. */
const CALLERS_PER_ADDRESS = 10;

/** Authentication and rate limits. */
export class Admission {
  private readonly verifications = new VerificationLimits();
  private readonly requests = new RateLimiter();

  constructor(
    private readonly gate: Gate,
    private readonly config: Pick<Config, 'gating'>,
  ) {}

  /**
   * Identifies the caller; throws 401 for invalid credentials, 429 for those of an address that keeps
   * failing. Valid credentials are not refused because others of their address fail.
   */
  admit(credentials: Credentials): Caller | Promise<Caller> {
    const attempt = new Attempt(this.verifications, credentials.address);
    try {
      const admitted = this.gate.admit(credentials, attempt);
      return admitted instanceof Promise ? admitted.catch(attempt.fail) : admitted;
    } catch (error) {
      return attempt.fail(error);
    }
  }

  /** Charges a caller for queries, before they are made; throws 429 if the limit is exceeded. */
  spend(caller: Caller, cost: number): void {
    const { name, address, perMinute = this.config.gating.perMinute } = caller;
    if (perMinute === undefined || cost <= 0) return;
    // Charges both or neither: a caller over its own limit must not use up the limit of its address.
    enforce(this.requests.peek(name, perMinute, cost));
    if (address !== undefined && address !== name) {
      enforce(this.requests.take(`address ${address}`, CALLERS_PER_ADDRESS * perMinute, cost));
    }
    this.requests.take(name, perMinute, cost);
  }

  /** Charges the extra cost of an expensive query, at most the limit of one minute. */
  spendExtra(caller: Caller, readCost: () => number): void {
    const { perMinute = this.config.gating.perMinute } = caller;
    if (perMinute !== undefined) this.spend(caller, Math.min(readCost(), perMinute - 1));
  }
}

/** One check of credentials and its cost for the address. */
class Attempt implements VerifyOptions {
  private limitError: unknown;

  constructor(
    private readonly limits: VerificationLimits,
    private readonly address: string,
  ) {}

  readonly isAffordable = (atLeast: VerificationCost): boolean =>
    this.tryLimit(() => this.limits.checkAffordable(this.address, atLeast) ?? true) === true;

  readonly charge: Charge = (work) => this.tryLimit(() => this.limits.reserve(this.address, work));

  private tryLimit<T>(take: () => T): T | undefined {
    try {
      return take();
    } catch (limitError) {
      this.limitError = limitError;
      return undefined;
    }
  }

  /** Throws the error for the client; failures of the gateway itself do not count against the address. */
  readonly fail = (error: unknown): never => {
    if (this.limitError) throw this.limitError;
    if (isInvalid(error)) this.limits.countFailure(this.address);
    throw error;
  };
}

const isInvalid = (error: unknown): boolean =>
  error instanceof QueryError &&
  (error.code === GrpcCode.unauthenticated || error.code === GrpcCode.permissionDenied);

/** Throws 403 if the caller may not query the route. */
export function checkPermission(caller: Caller, route: Route): void {
  if (caller.mayQuery(route.template)) return;
  throw forbidden(`you may not query ${route.template}`);
}

/** Failed attempts per minute and address. */
const FAILURES_PER_MINUTE = 120;
/** Signatures and KB of tokens per minute and address, for tokens larger than a plain one. */
const UNITS_PER_MINUTE = 1200;
/** Reading this many characters of a token takes about as long as verifying a signature. */
const CHARACTERS_PER_UNIT = 1024;
/** DID lookups per minute and address. */
const LOOKUPS_PER_MINUTE = 300;
/** Verifications waiting for a lookup, per address and in total. */
export const WAITING = { perAddress: 256, total: 1024 } as const;
const RETRY_SECONDS = 3;

/**
 * Limits the cost of unauthenticated callers. A plain token costs its address nothing in advance, only when it
 * fails, so that other callers of the address do not affect a valid one.
 */
export class VerificationLimits {
  private readonly failures = new RateLimiter();
  private readonly units = new RateLimiter();
  private readonly lookups = new RateLimiter();
  /** Verifications waiting for a lookup, by address; at most `WAITING.total` entries. */
  private readonly waiting = new Map<string, number>();
  private waitingTotal = 0;

  /** Counts a failed attempt; throws 429 if the address has failed too often. */
  countFailure(address: string): void {
    enforce(this.failures.take(address, FAILURES_PER_MINUTE));
  }

  /** Throws 429 if the address cannot pay for this work. */
  checkAffordable(address: string, work: VerificationCost): void {
    enforce(this.units.peek(address, UNITS_PER_MINUTE, measureExtraUnits(work)));
    enforce(this.lookups.peek(address, LOOKUPS_PER_MINUTE, work.lookups));
  }

  /**
   * Charges the cost of a verification, all of it or nothing, before the work starts; refunds it
   * if the token is valid. Throws 429 for the limits of the address, 503 for the total.
   */
  reserve(address: string, work: VerificationCost): Settle {
    const { lookups } = work;
    const units = measureExtraUnits(work);
    this.checkAffordable(address, work);
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

/** The cost in advance; nothing for a plain token with one signature and less than 1 KB. */
function measureExtraUnits({ signatures, characters }: VerificationCost): number {
  const units = signatures + Math.floor(characters / CHARACTERS_PER_UNIT);
  return units > 1 ? units : 0;
}
