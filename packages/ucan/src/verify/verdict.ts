import type { IpldMap } from '../codec/ipld.js';
import type { Capability, Token } from '../gate/token.js';

/** A success: who was proven by which UCANs, and until when. */
export interface Verdict {
  readonly did: string;
  readonly cid: string;
  readonly audience: string;
  /** Everyone who signed a link of the chain, `did` among them. */
  readonly issuers: readonly string[];
  /** The UCANs of the whole chain, `cid` among them. */
  readonly cids: readonly string[];
  /** Unix seconds; that of the link which runs out first, Infinity if none does. */
  readonly expiration: number;
}

/** A caller proven by a fresh signature. */
export interface VerifiedInvocation extends Verdict {
  readonly facts: readonly IpldMap[];
}

/**
 * A right handed to the oracle. `did` is the delegator: whoever signed the outermost UCAN, never
 * the root of its proofs, so that holding a right from somebody does not make one that somebody.
 */
export interface VerifiedDelegation extends Verdict {
  readonly capabilities: readonly Capability[];
  /** The archive itself, to store and to attach as a proof: a secret, never to be logged. */
  readonly token: string;
}

export function invocationOf(token: Token): VerifiedInvocation {
  return { ...verdictOf(token), facts: token.root.facts };
}

export function delegationOf(token: Token): VerifiedDelegation {
  return { ...verdictOf(token), capabilities: token.root.capabilities, token: token.text };
}

function verdictOf({ root, ucans }: Token): Verdict {
  const chain = [...ucans.values()];
  return {
    did: root.issuer,
    cid: root.cid,
    audience: root.audience,
    issuers: [...new Set(chain.map(({ issuer }) => issuer))],
    cids: [...ucans.keys()],
    expiration: Math.min(...chain.map(({ expiration }) => expiration ?? Number.POSITIVE_INFINITY)),
  };
}
