import { type DelegationStatus, OracleError, type StoreDelegation } from '@sibyl/protocol';
import type { UcanFault, VerifiedDelegation, Verifier } from '@sibyl/ucan';
import { toTemporaryError } from '../auth/authenticator.js';
import type { Caller } from '../auth/caller.js';
import type { DelegatedAuthority } from '../auth/delegated-authority.js';
import type { Store } from '../store/store.js';

interface DelegationServiceParts {
  readonly oracleDid: string;
  readonly verifier: Verifier;
  readonly authority: DelegatedAuthority;
  readonly store: Pick<Store, 'delegations' | 'revocations'>;
}

/** Stores, shows and takes back what users delegate to this oracle. */
export class DelegationService {
  constructor(private readonly parts: DelegationServiceParts) {}

  /** Keeps a delegation that the caller issued to this oracle; returns its expiry. */
  async store({ did, charge }: Caller, body: StoreDelegation): Promise<number> {
    const { verifier } = this.parts;
    const { ok: delegation, error } = await verifier.verifyDelegation(body.raw, { charge });
    if (error) throw toTemporaryError(error) ?? this.refusal(error);
    if (delegation.did !== did) throw new OracleError('foreign_delegation');
    assertAgrees(body, delegation);
    await this.parts.store.delegations.put({
      owner: did,
      oracleDid: this.parts.oracleDid,
      cid: delegation.cid,
      issuer: delegation.did,
      audience: delegation.audience,
      expiresAt: delegation.expiration * 1000,
      raw: body.raw,
    });
    return delegation.expiration;
  }

  /** Judged by the stored token itself: expired, revoked or unreadable ones authorize nothing. */
  async status({ did }: Caller): Promise<DelegationStatus> {
    const stored = await this.parts.store.delegations.get(this.keyOf(did));
    if (!('ok' in stored)) return { authorized: false };
    const { ok } = await this.parts.verifier.verifyDelegation(stored.ok.raw);
    return {
      authorized: ok !== undefined,
      ...(stored.ok.expiresAt && { expiration: Math.floor(stored.ok.expiresAt / 1000) }),
    };
  }

  /** Revokes the stored delegation, and the one that came along if the caller issued it. */
  async revoke(caller: Caller): Promise<void> {
    const presented = await this.presentedBy(caller);
    if (presented) {
      const { cid, expiration } = presented;
      await this.parts.store.revocations.add({
        owner: caller.did,
        cid,
        expiresAt: expiration * 1000,
      });
      this.parts.authority.forget(cid);
    }
    const removed = await this.parts.store.delegations.revoke(this.keyOf(caller.did));
    if (removed) this.parts.authority.forget(removed.cid);
  }

  private async presentedBy(caller: Caller): Promise<VerifiedDelegation | undefined> {
    if (caller.presentedDelegation === undefined) return undefined;
    const { presentedDelegation: token, charge } = caller;
    const { ok } = await this.parts.verifier.verifyDelegation(token, { charge });
    return ok?.did === caller.did ? ok : undefined;
  }

  private keyOf(owner: string) {
    return { owner, oracleDid: this.parts.oracleDid };
  }

  private refusal({ code, cid }: UcanFault): OracleError {
    const { oracleDid } = this.parts;
    const message = reasonOf(code, oracleDid);
    return new OracleError('invalid_delegation', { message, cause: { code, cid } });
  }
}

/** What the sender can mend is told; the rest is one text. */
function reasonOf(code: UcanFault['code'], oracleDid: string): string {
  switch (code) {
    case 'expired':
      return 'The delegation has expired: sign a new one';
    case 'wrong_audience':
      return `The delegation is for another audience: this oracle is ${oracleDid}`;
    case 'expiry_missing':
      return 'The delegation never expires: give it an expiry';
    case 'not_yet_valid':
      return 'The delegation is not valid yet';
    case 'revoked':
      return 'The delegation was revoked: sign a new one';
    case 'wrong_purpose':
    case 'single_use':
      return 'raw is an invocation: delegate abilities other than oracle/* and mcp/*, with a token not used before';
    case 'did_unavailable':
      return 'The keys of the issuer could not be looked up: try again';
    default:
      return 'raw is not a valid UCAN delegation: send the base64 CAR that ucanto archives';
  }
}

/** What the body says beside the token must be what the token says. */
function assertAgrees(body: StoreDelegation, delegation: VerifiedDelegation): void {
  const truth = {
    issuer: delegation.did,
    audience: delegation.audience,
    expiration: delegation.expiration,
  };
  const lines = (Object.keys(truth) as (keyof typeof truth)[])
    .filter((field) => body[field] !== undefined && body[field] !== truth[field])
    .map((field) => `${field}: contradicts the delegation, which says ${truth[field]}`);
  if (lines.length > 0) throw new OracleError('validation_failed', { message: lines });
}
