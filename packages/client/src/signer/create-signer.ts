import type { OracleSigner } from './oracle-signer.js';

export interface SigningKey {
  /** The DID whose key signs: a did:key, or one whose document lists the key. */
  readonly did: string;
  /** Signs with Ed25519: 64 bytes. */
  sign(bytes: Uint8Array): Uint8Array | Promise<Uint8Array>;
}

/** A signer around a function that signs, wherever the key may be. */
export declare function createSigner(key: SigningKey): OracleSigner;
