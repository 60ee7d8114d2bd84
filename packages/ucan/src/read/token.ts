import type { Capability, UcanPayload } from '../codec/ucan.js';

export type { Capability };

/** One UCAN that `readToken` accepted; its signature is not verified yet. */
export interface Ucan extends UcanPayload {
  readonly cid: string;
  readonly bytes: Uint8Array;
  readonly signature: Uint8Array;
}

/** A token that `readToken` accepted: the outermost UCAN and the chain of its proofs. */
export interface Token {
  readonly text: string;
  readonly root: Ucan;
  /** Every UCAN of the chain by its CID, `root` among them. */
  readonly ucans: ReadonlyMap<string, Ucan>;
}

/** The limits of `readToken`; every later step relies on them. */
export const LIMITS = {
  characters: 8192,
  blocks: 10,
  ucans: 8,
  depth: 4,
  proofs: 2,
  capabilities: 16,
} as const;
