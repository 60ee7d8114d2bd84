import { RateLimiter } from '@sibyl/server-kit';
import type { Charge } from '@sibyl/ucan';
import type { Config } from '../config/config.js';
import { QueryFault } from '../query/query-fault.js';
import type { Route } from '../schema.js';
import { GrpcCode } from '../upstream/grpc-error.js';
import type { Caller, Credentials, Gate } from './caller.js';
import { enforce, forbidden } from './refusals.js';
import { VerificationLimits } from './verification-limits.js';

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
    } catch (fault) {
      return attempt.fail(fault);
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
  private refusal: unknown;

  constructor(
    private readonly limits: VerificationLimits,
    private readonly address: string,
  ) {}

  readonly charge: Charge = (work) => {
    try {
      return this.limits.reserve(this.address, work);
    } catch (refusal) {
      this.refusal = refusal;
      return undefined;
    }
  };

  /** Throws what the client is answered; a failure of the gateway itself is not held against the address. */
  readonly fail = (fault: unknown): never => {
    if (this.refusal) throw this.refusal;
    if (isInvalid(fault)) this.limits.countFailure(this.address);
    throw fault;
  };
}

const isInvalid = (fault: unknown): boolean =>
  fault instanceof QueryFault &&
  (fault.code === GrpcCode.unauthenticated || fault.code === GrpcCode.permissionDenied);

/** Throws 403 for a route that is not open to the caller. */
export function permit(caller: Caller, route: Route): void {
  if (caller.mayAsk(route.template)) return;
  throw forbidden(`${route.template} is not among what you may ask`);
}
