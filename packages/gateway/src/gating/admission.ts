import { RateLimiter } from '@sibyl/server-kit';
import type { Config } from '../config/config.js';
import { QueryFault } from '../query/query-fault.js';
import type { Route } from '../schema.js';
import type { Caller, Credentials, Gate } from './caller.js';
import { openGate } from './open-gate.js';
import { forbidden, tooMany } from './refusals.js';

/** Failed attempts a minute of one address, since each costs a digest or a signature. */
const FAILURES_PER_MINUTE = 120;

/** The gate and the limits behind it. */
export class Admission {
  private readonly failures = new RateLimiter();
  private readonly requests = new RateLimiter();

  constructor(
    private readonly gate: Gate,
    private readonly config: Pick<Config, 'gating'>,
  ) {}

  /** Who asks; throws 401 for those who do not say so well, 429 for those who keep failing to. */
  admit(credentials: Credentials): Caller | Promise<Caller> {
    if (this.gate === openGate) return openGate.admit(credentials);
    return this.examine(credentials);
  }

  private async examine(credentials: Credentials): Promise<Caller> {
    const { address } = credentials;
    if (!this.failures.peek(address, FAILURES_PER_MINUTE).allowed) throw tooMany(1);
    try {
      return await this.gate.admit(credentials);
    } catch (fault) {
      if (fault instanceof QueryFault) this.failures.take(address, FAILURES_PER_MINUTE);
      throw fault;
    }
  }

  /** Counts queries of a caller; throws 429 if they are too many. */
  spend({ name, perMinute = this.config.gating.perMinute }: Caller, count: number): void {
    if (perMinute === undefined) return;
    const { allowed, resetSeconds } = this.requests.take(name, perMinute, count);
    if (!allowed) throw tooMany(resetSeconds);
  }
}

/** Throws 403 for a route that is not open to the caller. */
export function permit(caller: Caller, route: Route): void {
  if (caller.mayAsk(route.template)) return;
  throw forbidden(`${route.template} is not among what you may ask`);
}
