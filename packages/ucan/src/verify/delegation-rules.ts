import type { UcanPayload } from '../codec/ucan-block.js';
import { refuse, type UcanFault } from '../fault.js';
import { named } from '../gate/read-token.js';
import type { Token, Ucan } from '../gate/token.js';
import { isCovered } from './coverage.js';
import { checkTime } from './time-rules.js';

export interface DelegationRules {
  readonly audiences: ReadonlySet<string>;
  readonly now: number;
}

/** Everything about a delegation that can be judged without network and signature. */
export function checkDelegation(token: Token, rules: DelegationRules): UcanFault | undefined {
  const { root, ucans } = token;
  if (!rules.audiences.has(root.audience)) return refuse('wrong_audience', root.audience).error;
  if (root.capabilities.length === 0) return refuse('wrong_capability', 'none delegated').error;
  const call = root.capabilities.find(({ can }) => isCall(can));
  if (call) return refuse('wrong_purpose', `${call.can} is an invocation`).error;
  for (const ucan of ucans.values()) {
    const fault = checkTime(ucan, rules.now) ?? checkProofs(ucan, proofsOf(ucan, ucans));
    if (fault) return named(fault, ucan);
  }
  return undefined;
}

/**
 * Whether an ability calls the oracle or a tool. UCANs have no type, and such tokens are passed on to
 * other services: as delegations they would let those services act as the user.
 */
const isCall = (can: string): boolean => can.startsWith('oracle/') || can.startsWith('mcp/');

/** The proofs of a UCAN; the gate saw to it that none is missing. */
export function proofsOf(ucan: Ucan, ucans: ReadonlyMap<string, Ucan>): readonly Ucan[] {
  return ucan.proofs.flatMap((link) => ucans.get(link.toString()) ?? []);
}

/** Checks that proofs are meant for the issuer and grant all that is claimed, for as long. */
export function checkProofs(ucan: UcanPayload, proofs: readonly Ucan[]): UcanFault | undefined {
  // Without proofs a UCAN speaks for its issuer alone, which is all the authority there is.
  if (proofs.length === 0) return undefined;
  for (const proof of proofs) {
    if (proof.audience !== ucan.issuer) {
      return refuse('chain_broken', `proof ${proof.cid} is for ${proof.audience}`).error;
    }
    if (!isWithin(ucan, proof)) return refuse('time_bounds', `outside ${proof.cid}`).error;
  }
  const grants = proofs.flatMap((proof) => proof.capabilities);
  const beyond = ucan.capabilities.find((capability) => !isCovered(capability, grants));
  return beyond && refuse('escalation', `${beyond.can} at ${beyond.with}`).error;
}

function isWithin(ucan: UcanPayload, proof: UcanPayload): boolean {
  return (
    (ucan.expiration ?? Number.POSITIVE_INFINITY) <=
      (proof.expiration ?? Number.POSITIVE_INFINITY) &&
    (ucan.notBefore ?? 0) >= (proof.notBefore ?? 0)
  );
}
