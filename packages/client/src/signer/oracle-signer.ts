import type { Capability, MintedToken } from '@sibyl/ucan/browser';

export interface InvocationRequest {
  /** The oracle's DID. */
  readonly audience: string;
  /** Unix seconds now, as the oracle's clock has it. */
  readonly now: number;
}

export interface DelegationRequest {
  /** The oracle's DID. */
  readonly audience: string;
  readonly capabilities: readonly Capability[];
  /** Unix seconds. */
  readonly expiration: number;
}

/**
 * Who is calling: makes the tokens that prove it. `createSigner` builds one around a function that
 * signs bytes; a wallet that mints tokens of its own can be one directly.
 */
export interface OracleSigner {
  readonly did: string;
  /** Makes a bearer for the oracle (contract B8). */
  invoke(request: InvocationRequest): Promise<MintedToken>;
  /** Makes a delegation from the user to the oracle. */
  delegate(request: DelegationRequest): Promise<MintedToken>;
}
