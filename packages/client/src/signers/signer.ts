import type { Result } from '@sibyl/protocol';
import {
  type Capability,
  type MintedToken,
  mintAuthInvocation,
  mintDelegation,
  type UcanError,
} from '@sibyl/ucan/browser';
import { toSigningError } from '../errors.js';

export interface InvocationRequest {
  /** The oracle's DID. */
  readonly audience: string;
  /** The current time by the oracle's clock, in Unix seconds. */
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
 * Creates the tokens that identify the user. `createSigner` builds one from a function that signs
 * bytes; a wallet that mints tokens can implement this interface directly.
 */
export interface OracleSigner {
  readonly did: string;
  /** Creates a bearer token for the oracle. */
  invoke(request: InvocationRequest): Promise<MintedToken>;
  /** Creates a delegation from the user to the oracle. */
  delegate(request: DelegationRequest): Promise<MintedToken>;
}

const BEARER_SECONDS = 300;

export interface SigningKey {
  /** The signer's DID: a did:key, or a DID whose document lists the key. */
  readonly did: string;
  /** Returns an Ed25519 signature of 64 bytes. */
  sign(bytes: Uint8Array): Uint8Array | Promise<Uint8Array>;
}

/** Creates a signer from a function that signs bytes. */
export function createSigner(key: SigningKey): OracleSigner {
  const signer = { did: key.did, sign: async (bytes: Uint8Array) => key.sign(bytes) };
  return {
    did: key.did,
    invoke: (request) =>
      unwrapToken(mintAuthInvocation({ signer, ttlSeconds: BEARER_SECONDS, ...request })),
    // Revocation is by token, so granting the same terms again needs a different token.
    delegate: (request) =>
      unwrapToken(mintDelegation({ signer, nonce: crypto.randomUUID(), ...request })),
  };
}

async function unwrapToken(minting: Promise<Result<MintedToken, UcanError>>): Promise<MintedToken> {
  const { ok, error } = await minting.catch((cause) => {
    throw toSigningError(cause);
  });
  if (ok) return ok;
  throw toSigningError(error.detail);
}
