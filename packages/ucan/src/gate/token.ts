import type { Capability, UcanPayload } from '../codec/ucan-block.js';

export type { Capability };

/** One UCAN that passed the gate; its signature is still unproven. */
export interface Ucan extends UcanPayload {
  readonly cid: string;
  readonly bytes: Uint8Array;
  readonly signature: Uint8Array;
}

/** A token that passed the gate: the outermost UCAN and the chain of its proofs. */
export interface Token {
  readonly text: string;
  readonly root: Ucan;
  /** Every UCAN of the chain by its CID, `root` among them. */
  readonly ucans: ReadonlyMap<string, Ucan>;
}
