import type { IncomingHttpHeaders } from 'node:http';
import { OracleError, type Result } from '@sibyl/protocol';
import { LruMap, textBytes, toAddressKey } from '@sibyl/server-kit';
import {
  type Charge,
  isAuthInvocation,
  type UcanError,
  type VerificationCost,
  type VerifiedDelegation,
  type Verifier,
  type VerifyOptions,
} from '@sibyl/ucan';
import type { Logger } from 'pino';
import type { Metrics } from '../observability/metrics.js';
import { type DelegationStore, USE_PRECISION_MS } from '../store/delegation-store.js';
import type { DiskSpace } from '../store/disk-space.js';
import type { AccessKeyLogin, Caller, ProvenCaller, VerifiedAccessKey } from './caller.js';
import type { HeaderSink, RateLimits } from './rate-limits.js';

/** The credentials in a request or handshake. */
export interface Credentials {
  readonly invocation?: string | undefined;
  readonly delegation?: string | undefined;
  /** Only on routes that accept access keys. */
  readonly accessKey?: string | undefined;
}

/** The bearer token counts only with `X-Auth-Type: ucan`. */
export function readCredentials(headers: IncomingHttpHeaders): Credentials {
  const { authorization = '' } = headers;
  const delegation = readHeader(headers['x-ucan-delegation']);
  // Credentials of another scheme are no invocation; they may be for a proxy. An empty one is invalid beside a delegation.
  const isEmpty = authorization.trim().toLowerCase() === 'bearer';
  // Also among several values, so that an invalid bearer token is not ignored.
  const isBearer = /\bbearer\b/i.test(authorization) && (!isEmpty || delegation !== undefined);
  const isInvocation = isBearer && UCAN.test(String(headers['x-auth-type']));
  return { invocation: isInvocation ? readBearer(authorization) : undefined, delegation };
}

/** Among several values too: a repeated header arrives as a list, and an invalid bearer token must not be ignored because of that. */
const UCAN = /(?:^|,)\s*ucan\s*(?:,|$)/i;

/** An access key counts only without `X-Auth-Type`. */
export function readAccessKey(headers: IncomingHttpHeaders): string | undefined {
  if (headers['x-auth-type'] !== undefined) return undefined;
  return readHeader(headers['x-api-key']) ?? (readBearer(headers.authorization) || undefined);
}

/** The value of the caveat `user` with which each request names its user. */
export const ANY_USER = '*';

/** What a request says about the use of an access key; it can only narrow it. */
export function narrowToRequest(
  { caveats, ...key }: AccessKeyLogin,
  headers: IncomingHttpHeaders,
): AccessKeyLogin {
  const isTask = readHeader(headers['x-background-task']) !== undefined;
  const restricted = isTask ? { ...caveats, tools: [] } : caveats;
  if (caveats.user !== ANY_USER) return { ...key, caveats: restricted, subUser: caveats.user };
  // Open WebUI sends the second one.
  const named = readHeader(headers['x-sub-user']) ?? readHeader(headers['x-openwebui-user-id']);
  return { ...key, caveats: restricted, subUser: named };
}

/** Empty if it cannot be read. */
function readBearer(header: string | undefined): string | undefined {
  if (!header?.trim()) return undefined;
  return /^bearer +(.*)$/i.exec(header.trim())?.[1] ?? '';
}

function readHeader(header: string | string[] | undefined): string | undefined {
  return typeof header === 'string' && header.trim() ? header.trim() : undefined;
}

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
    // The same token as a bearer says no more: nothing could be done with it as a delegation.
    if (isAuthInvocation(login))
      return { did: login.did, expiration: login.expiration, presentedDelegation: undefined };
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
): Promise<ProvenCaller> {
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
  const holder = await limits.holders.find(caller.did, toAddressKey(address));
  await limits.takeCaller(holder, headers, cost);
  const presentedAt = caller.presentedDelegation === undefined ? undefined : Date.now() / 1000;
  return { ...caller, holder, presentedAt, charge: limits.chargeFor(holder) };
}

/** About 9,000 delegations. */
const RECORDED_BYTES = 2 * 1024 * 1024;

const DAY_SECONDS = 86_400;

interface PresentedDelegationsOptions {
  readonly oracleDid: string;
  readonly delegations: DelegationStore;
  /** Undefined if the database is not on a disk of this host. */
  readonly disk: DiskSpace | undefined;
  readonly logger: Logger;
  /** Maximum days until the expiry of a delegation that may log in; undefined for no limit. */
  readonly loginMaxDays: number | undefined;
}

/** Delegations in requests: decides which of them may log in, and records their use. */
export class PresentedDelegations {
  /** When this process last recorded the use of a CID, on the monotonic clock. */
  private readonly recorded = new LruMap<string, number>({
    maxBytes: RECORDED_BYTES,
    measure: (_, cid) => textBytes(cid) + 8,
  });

  constructor(private readonly options: PresentedDelegationsOptions) {}

  /** Returns why a valid delegation may not log in; undefined if it may. */
  checkLogin({ did, cid, expiration }: VerifiedDelegation): UcanError | undefined {
    const { oracleDid, loginMaxDays } = this.options;
    if (did === oracleDid)
      return {
        code: 'wrong_issuer',
        detail: 'the oracle does not log in to itself',
        cid,
        issuer: did,
      };
    if (loginMaxDays === undefined) return undefined;
    if (expiration <= Date.now() / 1000 + loginMaxDays * DAY_SECONDS) return undefined;
    const detail = `expires more than DELEGATION_LOGIN_MAX_DAYS=${loginMaxDays} days from now`;
    return { code: 'expiry_too_far', detail, cid, issuer: did };
  }

  /**
   * Records a delegation so that its issuer can list and revoke it. Writes to the store at most once an hour, and
   * not while disk space is low: keys cost nothing, so any client could fill the disk with read requests.
   */
  async record({
    did,
    cid,
    audience,
    capabilities,
    expiration,
  }: VerifiedDelegation): Promise<void> {
    const now = performance.now();
    const last = this.recorded.get(cid);
    if (last !== undefined && now - last < USE_PRECISION_MS) return;
    const expiresAt = Number.isFinite(expiration) ? expiration : null;
    try {
      const { delegations, disk } = this.options;
      if (await disk?.isLow()) return;
      const use = { owner: did, cid, audience, capabilities, expiresAt };
      const dropped = await delegations.recordUse(use);
      this.recorded.set(cid, now);
      this.forget(dropped);
    } catch (err) {
      // Users can still read while the store accepts no writes; the next use tries again.
      this.options.logger.warn({ err, did, cid }, 'cannot record the use of a delegation');
    }
  }

  /** Makes sure that the next use of delegations that the store has dropped is recorded again. */
  forget(cids: readonly string[]): void {
    for (const cid of cids) this.recorded.delete(cid);
  }
}
