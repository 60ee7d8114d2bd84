import {
  type DelegationInfo,
  type DelegationList,
  type DelegationStatus,
  OracleError,
  type StoppedWork,
  type StoreDelegation,
} from '@sibyl/protocol';
import {
  isAuthInvocation,
  readToken,
  TOKEN_LIMITS,
  type UcanError,
  type VerifiedDelegation,
  type Verifier,
} from '@sibyl/ucan';
import type { DelegationRecord } from '../store/delegation-store.js';
import type { Store } from '../store/store.js';
import { type PresentedDelegations, toTemporaryError } from './authenticator.js';
import type { Caller } from './caller.js';
import type { DelegatedAuthority } from './delegated-authority.js';

interface DelegationServiceDeps {
  readonly oracleDid: string;
  readonly verifier: Verifier;
  readonly authority: DelegatedAuthority;
  readonly presented: PresentedDelegations;
  readonly store: Pick<Store, 'delegations' | 'revocations' | 'disk'>;
}

/** Stores, lists and revokes delegations of users. */
export class DelegationService {
  constructor(private readonly deps: DelegationServiceDeps) {}

  /** Stores a delegation that the caller issued to this oracle; returns its expiry, if any. */
  async store({ did, charge }: Caller, body: StoreDelegation): Promise<number | undefined> {
    const { verifier, presented, store } = this.deps;
    await store.disk?.assertRoom();
    const { ok: delegation, error } = await verifier.verifyDelegation(body.raw, { charge });
    if (error) throw toTemporaryError(error) ?? this.createRejection(error);
    if (isAuthInvocation(delegation))
      throw this.createRejection({ code: 'wrong_purpose', detail: 'an auth invocation' });
    if (delegation.did !== did) throw new OracleError('foreign_delegation');
    assertAgrees(body, delegation);
    const { cid, audience, capabilities } = delegation;
    const expiration = finiteExpiry(delegation);
    const { dropped, revoked } = await store.delegations.put({
      owner: did,
      cid,
      audience,
      capabilities,
      expiresAt: expiration ?? null,
      raw: body.raw,
    });
    presented.forget(dropped);
    await this.deps.authority.forget(revoked);
    return expiration;
  }

  /** Verifies the stored token: an expired, revoked or unreadable one does not authorize. */
  async status({ did, charge }: Caller): Promise<DelegationStatus> {
    const stored = await this.findCurrent(did);
    if (!stored) return { authorized: false };
    const { ok, error } = await this.deps.verifier.verifyDelegation(stored.raw, { charge });
    const temporary = error && toTemporaryError(error);
    if (temporary) throw temporary;
    const { expiresAt } = stored;
    return { authorized: ok !== undefined, ...(expiresAt !== null && { expiration: expiresAt }) };
  }

  /** All recorded delegations of the caller, newest first. */
  async list({ did }: Caller): Promise<DelegationList> {
    await this.deps.authority.saveUses();
    const records = await this.deps.store.delegations.list(did);
    const current = records.some(({ capabilities }) => !capabilities)
      ? await this.findCurrent(did)
      : undefined;
    const fallback = readToken(current?.raw).ok?.root.capabilities ?? [];
    return { delegations: records.map((record) => toInfo(record, fallback)) };
  }

  /** Revokes the stored delegation of the caller, those it replaced, and the one in the request. */
  async revoke(caller: Caller): Promise<void> {
    await this.deps.authority.forget(await this.deps.store.delegations.revokeStored(caller.did));
    await this.revokePresented(caller);
  }

  /** Returns what it ran. */
  async revokeOne({ did }: Caller, cid: string): Promise<StoppedWork[]> {
    if (!(await this.deps.store.delegations.revoke(did, cid)))
      throw new OracleError('delegation_not_found');
    return this.deps.authority.forget([cid]);
  }

  /** Revokes all delegations that `list` returns, and the one in the request; returns how many, and what they ran. */
  async revokeAll(caller: Caller): Promise<{ revoked: number; stopped: StoppedWork[] }> {
    const revoked = await this.deps.store.delegations.revokeAll(caller.did);
    const stopped = await this.deps.authority.forget(revoked);
    const presented = await this.revokePresented(caller);
    const cids = new Set([...revoked, ...(presented === undefined ? [] : [presented])]);
    return { revoked: cids.size, stopped };
  }

  /**
   * Revokes the delegation in the request, if the caller signed it; returns its CID. It need not be valid now: it may
   * become so later, and its CID means exactly this delegation.
   */
  private async revokePresented(caller: Caller): Promise<string | undefined> {
    const { did, presentedDelegation, charge } = caller;
    if (readToken(presentedDelegation).ok?.root.issuer !== did) return undefined;
    await this.deps.store.disk?.assertRoom();
    // Without a signature it is never valid, and a thief of a login could invent any number.
    const expectation = { issuer: did, charge };
    const { ok, error } = await this.deps.verifier.verifyIssuer(presentedDelegation, expectation);
    if (error?.code === 'did_unavailable') throw this.createRejection(error);
    const temporary = error && toTemporaryError(error);
    if (temporary) throw temporary;
    if (!ok) return undefined;
    const { cid, expiration: expiresAt } = ok;
    await this.deps.store.revocations.add({ owner: did, cid, expiresAt });
    await this.deps.authority.forget([cid]);
    return cid;
  }

  private async findCurrent(owner: string) {
    const { store, oracleDid } = this.deps;
    const stored = await store.delegations.get({ owner, audience: oracleDid });
    return 'ok' in stored ? stored.ok : undefined;
  }

  private createRejection({ code, cid }: UcanError): OracleError {
    const { oracleDid } = this.deps;
    const message = explainRefusal(code, oracleDid);
    return new OracleError('invalid_delegation', { message, cause: { code, cid } });
  }
}

/** Explains errors that the sender can fix; all others have the same text. */
function explainRefusal(code: UcanError['code'], oracleDid: string): string {
  switch (code) {
    case 'expired':
      return 'The delegation has expired: sign a new one';
    case 'wrong_audience':
      return `The delegation is for another audience: this oracle is ${oracleDid}`;
    case 'expiry_too_far':
      return 'The delegation expires after the year 9999: give its expiry in seconds, or none';
    case 'not_yet_valid':
      return 'The delegation is not valid yet';
    case 'revoked':
      return 'The delegation was revoked: sign a new one';
    case 'wrong_purpose':
    case 'single_use':
      return 'raw is an invocation: delegate abilities other than oracle/*, mcp/* and * at ixo:oracle, with a token not used before';
    case 'too_many_capabilities':
      return `The delegation has more than ${TOKEN_LIMITS.capabilities} capabilities: sign one with fewer`;
    case 'did_unavailable':
      return 'The keys of the issuer could not be looked up: try again';
    default:
      return 'raw is not a valid UCAN delegation: send the base64 CAR that ucanto archives';
  }
}

/** The other fields of the body must agree with the token. */
function assertAgrees(body: StoreDelegation, delegation: VerifiedDelegation): void {
  const truth = {
    issuer: delegation.did,
    audience: delegation.audience,
    expiration: finiteExpiry(delegation) ?? 'that it never expires',
  };
  const lines = (Object.keys(truth) as (keyof typeof truth)[])
    .filter((field) => body[field] !== undefined && body[field] !== truth[field])
    .map((field) => `${field}: contradicts the delegation, which says ${truth[field]}`);
  if (lines.length > 0) throw new OracleError('validation_failed', { message: lines });
}

const finiteExpiry = ({ expiration }: VerifiedDelegation): number | undefined =>
  Number.isFinite(expiration) ? expiration : undefined;

function toInfo(
  record: DelegationRecord,
  fallback: VerifiedDelegation['capabilities'],
): DelegationInfo {
  const { cid, audience, expiresAt, createdAt, isCurrent, lastUsedAt, lastUsedBy, purpose } =
    record;
  const capabilities = record.capabilities ?? fallback;
  return {
    cid,
    audience,
    capabilities: capabilities.map(({ can, with: resource }) => ({ can, with: resource })),
    ...(expiresAt !== null && { expiration: expiresAt }),
    createdAt: new Date(createdAt).toISOString(),
    purpose,
    isCurrent,
    ...(lastUsedAt !== undefined && { lastUsedAt: new Date(lastUsedAt).toISOString() }),
    ...(lastUsedBy !== undefined && { lastUsedBy }),
  };
}
