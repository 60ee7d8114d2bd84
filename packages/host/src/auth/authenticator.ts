import { OracleError, type Result } from '@sibyl/protocol';
import type {
  Charge,
  UcanError,
  VerificationCost,
  VerifiedDelegation,
  Verifier,
  VerifyOptions,
} from '@sibyl/ucan';
import type { Logger } from 'pino';
import type { Metrics } from '../observability/metrics.js';
import type { Caller, Credentials, VerifiedAccessKey } from './caller.js';
import type { PresentedDelegations } from './delegated-authority.js';
import type { HeaderSink, RateLimits } from './rate-limits.js';

interface AuthenticatorDeps {
  readonly verifier: Verifier;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly allowDelegationLogin: boolean;
  readonly presented: PresentedDelegations;
  readonly accessKeys: {
    verify(token: string, options: VerifyOptions): Promise<Result<VerifiedAccessKey, UcanError>>;
  };
}

/** Turns credentials into a caller; rejects all invalid credentials with the same text. */
export class Authenticator {
  constructor(
    private readonly deps: AuthenticatorDeps,
    /** For routes of operators, who have to see what is wrong while the store does not answer. */
    readonly forOperators?: Authenticator,
  ) {}

  async authenticate(
    { invocation, delegation, accessKey }: Credentials,
    options: VerifyOptions,
  ): Promise<Caller> {
    // An invalid invocation is final: falling back to the delegation would be a downgrade.
    if (invocation !== undefined) return this.byInvocation(invocation, delegation, options);
    if (accessKey !== undefined) return this.byAccessKey(accessKey, delegation, options);
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
    if (error) throw this.createRejection('invalid_invocation', error);
    return { did: ok.did, expiration: ok.expiration, presentedDelegation: delegation };
  }

  private async byAccessKey(
    token: string,
    delegation: string | undefined,
    options: VerifyOptions,
  ): Promise<Caller> {
    const { ok, error } = await this.deps.accessKeys.verify(token, options);
    this.count('access_key', error);
    if (error) throw this.createRejection('invalid_access_key', error);
    const { did, cid, cids: loginCids, expiration, caveats } = ok;
    const accessKey = { cid, caveats };
    return { did, expiration, loginCids, accessKey, presentedDelegation: delegation };
  }

  private async byDelegation(token: string, options: VerifyOptions): Promise<Caller> {
    if (!this.deps.allowDelegationLogin) throw new OracleError('missing_authentication');
    const { ok, error: fault } = await this.deps.verifier.verifyDelegation(token, options);
    const error = fault ?? this.deps.presented.checkLogin(ok);
    this.count('delegation', error);
    if (error) throw this.createRejection('missing_authentication', error);
    const login = ok as VerifiedDelegation;
    const { did, expiration, cids: loginCids } = login;
    return { did, expiration, login, loginCids, presentedDelegation: token };
  }

  private count(means: string, fault: UcanError | undefined): void {
    this.deps.metrics.count('sibyl_auth_total', { means, outcome: fault ? 'refused' : 'proven' });
  }

  /** The reason is only logged: it would help an attacker. */
  private createRejection(
    code: 'invalid_invocation' | 'invalid_access_key' | 'missing_authentication',
    fault: UcanError,
  ) {
    const temporary = toTemporaryError(fault);
    if (temporary) return temporary;
    const { cid, issuer, detail } = fault;
    this.deps.logger.info({ reason: fault.code, detail, cid, did: issuer }, 'caller rejected');
    return new OracleError(code);
  }
}

/** The error of a failure that does not concern the token itself, so that a retry may succeed. */
export function toTemporaryError({ code, detail }: UcanError): OracleError | undefined {
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
  /** Whether it has already been counted for its address. */
  readonly isCounted?: boolean | undefined;
}

/**
 * Authenticates a caller and counts the request. The cost of a token is taken from its address before the work, and
 * refunded if it is valid; an invalid token beyond the limit of the address is a 429. Valid callers of that address
 * still pass.
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
  const presentedAt = caller.presentedDelegation === undefined ? undefined : Date.now() / 1000;
  return { ...caller, presentedAt, charge: limits.chargeFor(caller, address) };
}
