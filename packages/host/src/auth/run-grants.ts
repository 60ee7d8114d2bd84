import type { RunDelegation, RunPermission } from '@sibyl/plugin-kit';
import { canonicalJson, OracleError, RUN_ABILITY } from '@sibyl/protocol';
import {
  hasExactly,
  isCovered,
  readToken,
  type VerifiedDelegation,
  type Verifier,
} from '@sibyl/ucan';
import type { GrantKey, GrantStore, NewGrant } from '../store/grant-store.js';
import { toTemporaryError } from './authenticator.js';
import type { CallerAllowList } from './caller-allow-list.js';

/** Longer timers fire at once; no turn takes that long. */
const MAX_TIMER_MS = 2 ** 31 - 1;

interface RunGrantsDeps {
  readonly verifier: Verifier;
  readonly grants: GrantStore;
  readonly allowList: Pick<CallerAllowList, 'findExclusion'>;
}

/** What a delegation must be for. */
type Wanted = Pick<RunPermission, 'resource' | 'caveats'>;

type SignedWanted = Omit<RunPermission, 'cid'> & { readonly token: string };

/** A delegation that is valid, and how it is stored. */
interface VerifiedGrant {
  readonly delegation: RunDelegation;
  readonly grant: NewGrant;
}

/** Delegations with which users let turns run while they are not there. */
export class RunGrants {
  constructor(private readonly deps: RunGrantsDeps) {}

  /** Stores a delegation of the owner. */
  async store(signed: SignedWanted): Promise<RunDelegation> {
    const { delegation, grant } = await this.verify(signed);
    if (!(await this.deps.grants.put(grant))) throw tooManyGrants();
    return delegation;
  }

  /** Throws unless the token is a delegation of the owner for exactly what is wanted. */
  async verify({ owner, token, ...wanted }: SignedWanted): Promise<VerifiedGrant> {
    const { ok: read } = readToken(token);
    // Before any look-up: the issuer may be a DID whose document a stranger serves.
    if (read && read.root.issuer !== owner) throw new OracleError('foreign_delegation');
    const { ok, error } = await this.deps.verifier.verifyGrant(token, { can: RUN_ABILITY });
    if (error) throw toTemporaryError(error) ?? invalid(error.code, wanted);
    if (!covers(ok, wanted)) throw invalid('wrong_capability', wanted);
    const { cid, audience, capabilities, expiration } = ok;
    const expiresAt = Number.isFinite(expiration) ? expiration : null;
    const facts = { owner, cid, audience, capabilities, expiresAt };
    return {
      delegation: toRunDelegation(ok),
      grant: { ...facts, purpose: 'schedule', raw: token },
    };
  }

  remove({ owner, cid }: Pick<RunPermission, 'owner' | 'cid'>): Promise<void> {
    return this.deps.grants.remove(toKey({ owner, cid }));
  }

  /** Throws `delegation_ended` unless turns may run; a failure that may pass is another error. */
  async assertValid(permission: RunPermission): Promise<VerifiedDelegation> {
    const { owner } = permission;
    const stored = await this.deps.grants.get(toKey(permission));
    if (!stored) throw ended('The delegation was revoked or removed');
    const { ok, error } = await this.deps.verifier.verifyGrant(stored.raw, { can: RUN_ABILITY });
    if (error) throw toTemporaryError(error) ?? ended(describeEnd(error.code));
    if (ok.did !== owner || !covers(ok, permission)) throw ended(OTHER_USE);
    const exclusion = await this.deps.allowList.findExclusion(owner);
    if (exclusion) throw new OracleError(exclusion);
    return ok;
  }

  /** Throws if a permission is not valid; calls back when it expires. Returns a function that stops this. */
  async hold(
    permission: RunPermission,
    onExpired: (error: OracleError) => void,
  ): Promise<() => void> {
    const { expiration } = await this.assertValid(permission);
    const leftMs = expiration * 1000 - Date.now();
    const expire = () => onExpired(ended(describeEnd('expired')));
    const timer = leftMs <= MAX_TIMER_MS ? setTimeout(expire, leftMs) : undefined;
    return () => clearTimeout(timer);
  }
}

const toKey = ({ owner, cid }: Pick<RunPermission, 'owner' | 'cid'>): GrantKey => ({
  owner,
  cid,
  purpose: 'schedule',
});

const OTHER_USE = 'The delegation was signed for something else than what would run now';

/**
 * A delegation with other caveats than those that its use requires covers nothing: the host cannot enforce what it does
 * not know.
 */
function covers({ capabilities }: VerifiedDelegation, { resource, caveats }: Wanted): boolean {
  if (!caveats) return isCovered({ can: RUN_ABILITY, with: resource }, capabilities);
  return capabilities.some(
    (granted) => granted.with === resource && hasExactly(granted.nb ?? {}, caveats),
  );
}

const toRunDelegation = ({ cid, expiration }: VerifiedDelegation): RunDelegation => ({
  cid,
  ...(Number.isFinite(expiration) && { expiration }),
});

const ended = (message: string) => new OracleError('delegation_ended', { message });

export const tooManyGrants = () =>
  new OracleError('invalid_delegation', {
    message: 'You have stored too many delegations of this kind: revoke some, then try again',
  });

function invalid(code: string, wanted: Wanted): OracleError {
  return new OracleError('invalid_delegation', { message: explain(code, wanted) });
}

/** Explains errors that the signer can fix; all others have the same text. */
function explain(code: string, { resource, caveats }: Wanted): string {
  switch (code) {
    case 'expired':
    case 'revoked':
      return `${describeEnd(code)}: sign a new one`;
    case 'wrong_audience':
      return 'The delegation is for another audience: sign it for the DID of this oracle';
    case 'expiry_too_far':
      return 'The delegation expires after the year 9999: give its expiry in seconds, or none';
    default:
      return `The delegation must have exactly one capability, ${RUN_ABILITY} at ${resource}, ${caveats ? `with the caveats ${canonicalJson(caveats)} and without` : 'without caveats and'} proofs`;
  }
}

function describeEnd(code: string): string {
  switch (code) {
    case 'expired':
      return 'The delegation has expired';
    case 'revoked':
      return 'The delegation was revoked';
    default:
      return 'The delegation cannot be verified any more';
  }
}
