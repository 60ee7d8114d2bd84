import type { Result } from '@sibyl/protocol';
import {
  type Capability,
  type MintedToken,
  mintAuthInvocation,
  mintDelegation,
  type UcanFault,
} from '@sibyl/ucan/browser';
import { toSigningError } from '../errors.js';

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

const BEARER_SECONDS = 300;

export interface SigningKey {
  /** The DID whose key signs: a did:key, or one whose document lists the key. */
  readonly did: string;
  /** Signs with Ed25519: 64 bytes. */
  sign(bytes: Uint8Array): Uint8Array | Promise<Uint8Array>;
}

/** A signer around a function that signs, wherever the key may be. */
export function createSigner(key: SigningKey): OracleSigner {
  const signer = { did: key.did, sign: async (bytes: Uint8Array) => key.sign(bytes) };
  return {
    did: key.did,
    invoke: (request) =>
      unwrapToken(mintAuthInvocation({ signer, ttlSeconds: BEARER_SECONDS, ...request })),
    // The host remembers what was revoked: the same terms granted again must be another token.
    delegate: (request) =>
      unwrapToken(mintDelegation({ signer, nonce: crypto.randomUUID(), ...request })),
  };
}

async function unwrapToken(minting: Promise<Result<MintedToken, UcanFault>>): Promise<MintedToken> {
  const { ok, error } = await minting.catch((cause) => {
    throw toSigningError(cause);
  });
  if (ok) return ok;
  throw toSigningError(error.detail);
}
