import { OracleError } from '@sibyl/protocol';
import type {
  Charge,
  UcanFault,
  VerificationCost,
  VerifiedDelegation,
  Verifier,
  VerifyOptions,
} from '@sibyl/ucan';
import type { Logger } from 'pino';
import type { Metrics } from '../observability/metrics.js';
import type { Caller, Credentials } from './caller.js';
import type { PresentedDelegations } from './presented-delegations.js';
import type { HeaderSink, RateLimits } from './rate-limits.js';

interface AuthenticatorDeps {
  readonly verifier: Verifier;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly allowDelegationLogin: boolean;
  readonly presented: PresentedDelegations;
}

/** Turns credentials into a caller, or refuses with one text for every reason (contract A3). */
export class Authenticator {
  constructor(private readonly deps: AuthenticatorDeps) {}

  async authenticate(
    { invocation, delegation }: Credentials,
    options: VerifyOptions,
  ): Promise<Caller> {
    // A bad invocation is final: falling back to the delegation would be a downgrade.
    if (invocation !== undefined) return this.byInvocation(invocation, delegation, options);
    if (delegation !== undefined) return this.byDelegation(delegation, options);
    throw new OracleError('missing_authentication');
  }

  private async byInvocation(
    token: string,
    delegation: string | undefined,
    options: VerifyOptions,
  ): Promise<Caller> {
    const { ok, error } = await this.deps.verifier.verifyInvocation(token, options);
    this.count('invocation', error);
    if (error) throw this.refusal('invalid_invocation', error);
    return { did: ok.did, expiration: ok.expiration, presentedDelegation: delegation };
  }

  private async byDelegation(token: string, options: VerifyOptions): Promise<Caller> {
    if (!this.deps.allowDelegationLogin) throw new OracleError('missing_authentication');
    const { ok, error: fault } = await this.deps.verifier.verifyDelegation(token, options);
    const error = fault ?? this.deps.presented.checkLogin(ok);
    this.count('delegation', error);
    if (error) throw this.refusal('missing_authentication', error);
    const login = ok as VerifiedDelegation;
    const { did, expiration } = login;
    return { did, expiration, login, presentedDelegation: token };
  }

  private count(means: string, fault: UcanFault | undefined): void {
    this.deps.metrics.count('sibyl_auth_total', { means, outcome: fault ? 'refused' : 'proven' });
  }

  /** The reason goes to the log alone: it would help an attacker. */
  private refusal(code: 'invalid_invocation' | 'missing_authentication', fault: UcanFault) {
    const temporary = toTemporaryError(fault);
    if (temporary) return temporary;
    const { cid, issuer, detail } = fault;
    this.deps.logger.info({ reason: fault.code, detail, cid, did: issuer }, 'caller refused');
    return new OracleError(code);
  }
}

/** The error of a fault that says nothing about the token: it is worth trying again. */
export function toTemporaryError({ code, detail }: UcanFault): OracleError | undefined {
  switch (code) {
    case 'revocations_unavailable':
    case 'replay_store_unavailable':
      return new OracleError('store_unavailable', { retryAfterSeconds: 5, cause: detail });
    case 'did_busy':
    case 'verifier_busy':
      return new OracleError('verification_busy', { retryAfterSeconds: 3, cause: detail });
    case 'cost_refused':
      return new OracleError('rate_limited', { retryAfterSeconds: 3, cause: detail });
    default:
      return undefined;
  }
}

interface Attempt {
  readonly credentials: Credentials;
  readonly address: string | undefined;
  readonly headers?: HeaderSink;
  /** Whether it counts against its address already. */
  readonly isCounted?: boolean | undefined;
}

/**
 * Proves who is calling and counts the request. What a token costs is taken from its address before the
 * work, and given back once it is proven; a failure beyond the address's allowance is a 429. A valid
 * caller of that address passes.
 */
export async function proveCaller(
  { authenticator, limits }: { authenticator: Authenticator; limits: RateLimits },
  { credentials, address, headers, isCounted = false }: Attempt,
): Promise<Caller> {
  let cost = 1;
  let isPaid = isCounted;
  let refusal: unknown;
  const catchRefusal = <T>(take: () => T): T | undefined => {
    try {
      return take();
    } catch (error) {
      refusal = error;
      return undefined;
    }
  };
  const charge: Charge = (work) =>
    catchRefusal(() => {
      const reserved = limits.reserve(address, work, headers);
      cost = reserved.cost;
      isPaid ||= reserved.isPaid;
      return reserved.settle;
    });
  const isAffordable = (atLeast: VerificationCost) =>
    catchRefusal(() => limits.checkAffordable(address, atLeast, headers) ?? true) === true;
  const caller = await authenticator
    .authenticate(credentials, { charge, isAffordable })
    .catch((error: unknown) => {
      if (refusal) throw refusal;
      if (!isPaid) limits.takeAnonymous(address, headers);
      throw error;
    });
  await limits.takeCaller(caller, address, headers, cost);
  return { ...caller, charge: limits.chargeFor(caller, address) };
}
