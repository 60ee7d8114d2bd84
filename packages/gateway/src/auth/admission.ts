import { GrpcCode } from '@sibyl/grpc-client';
import { RateLimiter } from '@sibyl/server-kit';
import type { Charge, Settle, VerificationCost } from '@sibyl/ucan';
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

/** An address may be shared by this many callers before their limits together become its own. */
const CALLERS_PER_ADDRESS = 10;

/** The gate and the limits behind it. */
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
      const admitted = this.gate.admit(credentials, attempt.charge);
      return admitted instanceof Promise ? admitted.catch(attempt.fail) : admitted;
    } catch (error) {
      return attempt.fail(error);
    }
  }

  /** Charges a caller for queries, before they are made; throws 429 if the limit is exceeded. */
  spend(caller: Caller, cost: number): void {
    const { name, address, perMinute = this.config.gating.perMinute } = caller;
    if (perMinute === undefined || cost <= 0) return;
    // From both or from neither: a caller over its own limit must not use up that of its neighbors.
    enforce(this.requests.peek(name, perMinute, cost));
    if (address !== undefined && address !== name) {
      enforce(this.requests.take(`address ${address}`, CALLERS_PER_ADDRESS * perMinute, cost));
    }
    this.requests.take(name, perMinute, cost);
  }

  /** Charges for what makes one query more expensive than others; never more than a full minute can pay. */
  spendExtra(caller: Caller, readCost: () => number): void {
    const { perMinute = this.config.gating.perMinute } = caller;
    if (perMinute !== undefined) this.spend(caller, Math.min(readCost(), perMinute - 1));
  }
}

/** One check of credentials, and what it costs their address. */
class Attempt {
  private limitError: unknown;

  constructor(
    private readonly limits: VerificationLimits,
    private readonly address: string,
  ) {}

  readonly charge: Charge = (work) => {
    try {
      return this.limits.reserve(this.address, work);
    } catch (limitError) {
      this.limitError = limitError;
      return undefined;
    }
  };

  /** Throws what the client is answered; a failure of the gateway itself is not held against the address. */
  readonly fail = (error: unknown): never => {
    if (this.limitError) throw this.limitError;
    if (isInvalid(error)) this.limits.countFailure(this.address);
    throw error;
  };
}

const isInvalid = (error: unknown): boolean =>
  error instanceof QueryError &&
  (error.code === GrpcCode.unauthenticated || error.code === GrpcCode.permissionDenied);

/** Throws 403 for a route that is not open to the caller. */
export function checkPermission(caller: Caller, route: Route): void {
  if (caller.mayQuery(route.template)) return;
  throw forbidden(`${route.template} is not among what you may ask`);
}

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
