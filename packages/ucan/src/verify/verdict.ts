import { textBytes } from '@sibyl/server-kit';
import { type Ipld, isIpldMap } from '../codec/ipld.js';
import { Link } from '../codec/link.js';
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
export type VerifiedInvocation = Verdict;

/**
 * A right handed to the oracle. `did` is the delegator: whoever signed the outermost UCAN, never
 * the root of its proofs, so that holding a right from somebody does not make one that somebody.
 */
export interface VerifiedDelegation extends Verdict {
  readonly capabilities: readonly Capability[];
  /** The archive itself, to store and to attach as a proof: a secret, never to be logged. */
  readonly token: string;
}

export const invocationOf = (token: Token): VerifiedInvocation => verdictOf(token);

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

const OBJECT_BYTES = 120;
/** A typed array with few bytes of its own, or a link with one inside. */
const BYTES_OBJECT_BYTES = 240;

/** What a verdict keeps in memory, at most. */
export function measureVerdict(verdict: Verdict & Partial<VerifiedDelegation>): number {
  const { did, cid, audience, issuers, cids, capabilities = [], token = '' } = verdict;
  const texts = [did, cid, audience, token, ...issuers, ...cids];
  const base = texts.reduce((bytes, text) => bytes + textBytes(text), 2 * OBJECT_BYTES);
  return capabilities.reduce((bytes, { can, with: resource, nb = {} }) => {
    return bytes + OBJECT_BYTES + textBytes(can) + textBytes(resource) + measureIpld(nb);
  }, base);
}

function measureIpld(value: Ipld): number {
  if (typeof value === 'string') return textBytes(value);
  if (value instanceof Uint8Array) return BYTES_OBJECT_BYTES + value.length;
  if (value instanceof Link) return 2 * BYTES_OBJECT_BYTES + value.bytes.length;
  if (Array.isArray(value)) {
    return value.reduce<number>((bytes, item) => bytes + 8 + measureIpld(item), OBJECT_BYTES);
  }
  if (!isIpldMap(value)) return 16;
  return Object.entries(value).reduce(
    // A map with unique keys gets a hidden class for each of them.
    (bytes, [key, item]) => bytes + OBJECT_BYTES + textBytes(key) + measureIpld(item),
    OBJECT_BYTES,
  );
}
