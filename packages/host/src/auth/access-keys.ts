import {
  ACCESS_KEY_CAPABILITY,
  ACCESS_KEY_MAX_DAYS,
  AccessKeyCaveats,
  type AccessKeyInfo,
  describeIssues,
  OracleError,
  type RegisterAccessKey,
  type Result,
} from '@sibyl/protocol';
import type { UcanError, Verifier, VerifyOptions } from '@sibyl/ucan';
import type { AccessKeyRecord } from '../store/access-key-store.js';
import type { Store } from '../store/store.js';
import { toTemporaryError } from './authenticator.js';
import type { Caller, VerifiedAccessKey } from './caller.js';
import type { DelegatedAuthority } from './delegated-authority.js';

interface AccessKeysDeps {
  readonly oracleDid: string;
  readonly verifier: Verifier;
  readonly authority: Pick<DelegatedAuthority, 'forget'>;
  readonly store: Pick<Store, 'accessKeys' | 'disk'>;
}

/** Keys that users give to programs which cannot sign: each permits chatting and nothing else. */
export class AccessKeys {
  constructor(private readonly deps: AccessKeysDeps) {}

  /** Registers a key that the caller has signed. */
  async register(
    { did, charge }: Caller,
    { token, name }: RegisterAccessKey,
  ): Promise<AccessKeyInfo> {
    const { accessKeys, disk } = this.deps.store;
    await disk?.assertRoom();
    const { ok, error } = await this.read(token, { charge });
    if (error) throw toTemporaryError(error) ?? this.createRejection(error);
    if (ok.did !== did) throw new OracleError('foreign_delegation');
    const { cid, audience, expiration: expiresAt, caveats } = ok;
    const capabilities = [ACCESS_KEY_CAPABILITY];
    const key = { owner: did, cid, audience, capabilities, name, caveats, expiresAt };
    const registered = await accessKeys.register(key);
    if (!registered) throw new OracleError('too_many_access_keys');
    return toInfo(registered);
  }

  async list({ did }: Caller): Promise<AccessKeyInfo[]> {
    return (await this.deps.store.accessKeys.list(did)).map(toInfo);
  }

  /** Ends a key on all hosts, and the turns that were started with it. */
  async revoke({ did: owner }: Caller, cid: string): Promise<void> {
    if (!(await this.deps.store.accessKeys.revoke({ owner, cid })))
      throw new OracleError('access_key_not_found');
    await this.deps.authority.forget([cid]);
  }

  /** Verifies a key in a request; one that its user has not registered is invalid. */
  async verify(
    token: string,
    options: VerifyOptions,
  ): Promise<Result<VerifiedAccessKey, UcanError>> {
    const key = await this.read(token, options);
    if (key.error) return key;
    const { did: owner, cid } = key.ok;
    if (await this.deps.store.accessKeys.use({ owner, cid })) return key;
    return { error: { code: 'wrong_purpose', detail: 'not registered', cid, issuer: owner } };
  }

  /** Counts a turn of a caller whose key limits them; throws if the key has none left today. */
  async takeTurn({ did: owner, accessKey }: Caller): Promise<void> {
    const limit = accessKey?.caveats.turnsPerDay;
    if (!accessKey || limit === undefined) return;
    if (await this.deps.store.accessKeys.takeTurn({ owner, cid: accessKey.cid }, limit)) return;
    throw new OracleError('access_key_used_up', { retryAfterSeconds: secondsUntilMidnight() });
  }

  /** Does not count a turn that did not start. */
  async returnTurn({ did: owner, accessKey }: Caller): Promise<void> {
    if (accessKey?.caveats.turnsPerDay !== undefined)
      await this.deps.store.accessKeys.returnTurn({ owner, cid: accessKey.cid });
  }

  private async read(
    token: string,
    options: VerifyOptions,
  ): Promise<Result<VerifiedAccessKey, UcanError>> {
    const { ok, error } = await this.deps.verifier.verifyAccessKey(token, {
      ...options,
      capability: ACCESS_KEY_CAPABILITY,
      maxTtlSeconds: ACCESS_KEY_MAX_DAYS * DAY_SECONDS,
    });
    if (error) return { error };
    // An unknown caveat could narrow the key in a way that this host does not enforce.
    const caveats = AccessKeyCaveats.safeParse(ok.capabilities[0]?.nb ?? {});
    if (caveats.success) return { ok: { ...ok, caveats: caveats.data } };
    const detail = describeIssues(caveats.error.issues, 'caveats').join('; ');
    return { error: { code: 'has_caveats', detail, cid: ok.cid, issuer: ok.did } };
  }

  private createRejection(error: UcanError): OracleError {
    const message = [`token: ${explainRefusal(error, this.deps.oracleDid)}`];
    const { code, cid } = error;
    return new OracleError('validation_failed', { message, cause: { code, cid } });
  }
}

const DAY_SECONDS = 86_400;

const secondsUntilMidnight = () => DAY_SECONDS - (Math.floor(Date.now() / 1000) % DAY_SECONDS);

/** Explains errors that the sender can fix; all others have the same text. */
function explainRefusal({ code, detail }: UcanError, oracleDid: string): string {
  const { can, with: resource } = ACCESS_KEY_CAPABILITY;
  switch (code) {
    case 'expired':
      return 'has expired; sign a new one';
    case 'not_yet_valid':
      return 'is not valid yet; sign one that is';
    case 'expiry_missing':
    case 'expiry_too_far':
      return `must expire within ${ACCESS_KEY_MAX_DAYS} days`;
    case 'wrong_audience':
      return `is for another audience; this oracle is ${oracleDid}`;
    case 'wrong_capability':
      return `must have exactly one capability: ${can} at ${resource}`;
    case 'has_caveats':
      return `has caveats that this host does not know: ${detail}`;
    case 'has_proofs':
      return 'must be signed by you, without proofs';
    case 'revoked':
      return 'was revoked; sign a new one';
    default:
      return 'is not a valid UCAN delegation; send the base64 CAR';
  }
}

function toInfo(key: AccessKeyRecord): AccessKeyInfo {
  const { cid: id, name, caveats, expiresAt, createdAt, lastUsedAt, turnsToday } = key;
  return {
    id,
    name,
    caveats,
    expiration: expiresAt,
    createdAt: new Date(createdAt).toISOString(),
    ...(lastUsedAt !== undefined && { lastUsedAt: new Date(lastUsedAt).toISOString() }),
    ...(caveats.turnsPerDay !== undefined && { turnsToday }),
  };
}
