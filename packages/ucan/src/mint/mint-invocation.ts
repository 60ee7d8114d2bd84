import type { Result } from '@sibyl/protocol';
import { type Clock, systemClock } from '../clock.js';
import type { IpldMap } from '../codec/ipld.js';
import { refuse, type UcanFault } from '../fault.js';
import type { Capability, Ucan } from '../gate/token.js';
import type { Signer } from '../keys/signer.js';
import { isCovered } from '../verify/coverage.js';
import type { VerifiedDelegation } from '../verify/verdict.js';
import { issue } from './issue.js';
import type { MintedToken } from './minted-token.js';
import { nonceFact } from './nonce-fact.js';
import { readProofs } from './read-proofs.js';

const DEFAULT_TTL_SECONDS = 300;
/** A token that would run out on its way is not worth sending. */
const MIN_LIFE_SECONDS = 5;

export interface InvocationRequest {
  /** The oracle; the delegation must be addressed to its DID. */
  readonly signer: Signer;
  readonly delegation: VerifiedDelegation;
  /** The DID of the service to be called. */
  readonly audience: string;
  readonly can: string;
  readonly with: string;
  readonly nb?: IpldMap;
  readonly ttlSeconds?: number;
  readonly clock?: Clock;
}

/** Mints the call of a service on behalf of a user, with the user's delegation as its proof. */
export function mintInvocation(request: InvocationRequest): Result<MintedToken, UcanFault> {
  const { signer, delegation, audience, ttlSeconds = DEFAULT_TTL_SECONDS } = request;
  const now = (request.clock ?? systemClock)();
  const capability = capabilityOf(request);
  if (delegation.audience !== signer.did) {
    return refuse('chain_broken', `the delegation is for ${delegation.audience}`);
  }
  if (!isCovered(capability, delegation.capabilities)) {
    return refuse('not_covered', `${capability.can} at ${capability.with}`);
  }
  const expiration = Math.min(now + ttlSeconds, delegation.expiration);
  if (expiration - now < MIN_LIFE_SECONDS) {
    return refuse('too_short_lived', `${expiration - now} s left`);
  }
  const proofs = readProofs([delegation.token]);
  if (proofs.error) return proofs;
  const payload = {
    issuer: signer.did,
    audience,
    capabilities: [capability],
    expiration,
    ...startOf(proofs.ok.roots),
    facts: [nonceFact()],
    proofs: proofs.ok.links,
  };
  return issue(payload, signer, proofs.ok.blocks);
}

/** The bounds of a UCAN lie inside those of its proof. */
function startOf([delegation]: readonly Ucan[]): { readonly notBefore?: number } {
  return delegation?.notBefore === undefined ? {} : { notBefore: delegation.notBefore };
}

function capabilityOf({ can, with: resource, nb }: InvocationRequest): Capability {
  return { can, with: resource, ...(nb && { nb }) };
}
