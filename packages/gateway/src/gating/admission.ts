import { RateLimiter } from '@sibyl/server-kit';
import type { Config } from '../config/config.js';
import { QueryFault } from '../query/query-fault.js';
import type { Route } from '../schema.js';
import type { Caller, Credentials, Gate } from './caller.js';
import { openGate } from './open-gate.js';
import { forbidden, tooMany } from './refusals.js';

/** Failed attempts a minute of one address, since each costs a digest or a signature. */
const FAILURES_PER_MINUTE = 120;
/** An address may be shared by this many callers before their limits together become its own. */
const CALLERS_PER_ADDRESS = 10;

/** The gate and the limits behind it. */
export class Admission {
  private readonly failures = new RateLimiter();
  private readonly requests = new RateLimiter();

  constructor(
    private readonly gate: Gate,
    private readonly config: Pick<Config, 'gating'>,
  ) {}

  /** Identifies the caller; throws 401 for invalid credentials, 429 for an address that keeps failing. */
  admit(credentials: Credentials): Caller | Promise<Caller> {
    if (this.gate === openGate) return openGate.admit(credentials);
    const { address } = credentials;
    // Charged before the credentials are checked, so that simultaneous attempts cannot exceed the limit.
    const { allowed, resetSeconds } = this.failures.take(address, FAILURES_PER_MINUTE);
    if (!allowed) throw tooMany(resetSeconds);
    const admitted = this.examine(credentials);
    return admitted instanceof Promise
      ? admitted.then(
          (caller) => this.accept(address, caller),
          (fault) => this.reject(address, fault),
        )
      : this.accept(address, admitted);
  }

  private examine(credentials: Credentials): Caller | Promise<Caller> {
    try {
      return this.gate.admit(credentials);
    } catch (fault) {
      return this.reject(credentials.address, fault);
    }
  }

  private accept(address: string, caller: Caller): Caller {
    this.failures.refund(address, FAILURES_PER_MINUTE);
    return caller;
  }

  /** A failure of the gateway itself is not held against the address. */
  private reject(address: string, fault: unknown): never {
    if (!(fault instanceof QueryFault)) this.failures.refund(address, FAILURES_PER_MINUTE);
    throw fault;
  }

  /** Charges a caller for queries, before they are made; throws 429 if the limit is exceeded. */
  spend(caller: Caller, cost: number): void {
    const { name, address, perMinute = this.config.gating.perMinute } = caller;
    if (perMinute === undefined || cost <= 0) return;
    if (address !== undefined && address !== name) {
      this.charge(`address ${address}`, CALLERS_PER_ADDRESS * perMinute, cost);
    }
    this.charge(name, perMinute, cost);
  }

  /** Charges for what makes one query more expensive than others; never more than a full minute can pay. */
  spendExtra(caller: Caller, readCost: () => number): void {
    const { perMinute = this.config.gating.perMinute } = caller;
    if (perMinute !== undefined) this.spend(caller, Math.min(readCost(), perMinute - 1));
  }

  private charge(key: string, perMinute: number, cost: number): void {
    const { allowed, resetSeconds } = this.requests.take(key, perMinute, cost);
    if (!allowed) throw tooMany(resetSeconds);
  }
}

/** Throws 403 for a route that is not open to the caller. */
export function permit(caller: Caller, route: Route): void {
  if (caller.mayAsk(route.template)) return;
  throw forbidden(`${route.template} is not among what you may ask`);
}
