import { didFromPublicKey } from '../did/did-key.js';

/** An Ed25519 key held by WebCrypto, and the DID it signs under. */
export interface WebSigner {
  readonly did: string;
  sign(bytes: Uint8Array): Promise<Uint8Array>;
}

/** `CryptoKey`, by whatever name the surrounding types know it. */
type WebKey = Parameters<typeof crypto.subtle.sign>[1];

/** The two halves of a key; the private one need not be extractable. */
export interface WebKeyPair {
  readonly privateKey: WebKey;
  readonly publicKey: WebKey;
}

/** Makes a key whose private half never leaves WebCrypto; it can be kept in IndexedDB. */
export async function generateWebKeyPair(): Promise<WebKeyPair> {
  return crypto.subtle.generateKey('Ed25519', false, ['sign', 'verify']) as Promise<WebKeyPair>;
}

/** Signs with the key under its own did:key, or under another DID whose document lists it. */
export async function createWebSigner(keys: WebKeyPair, did?: string): Promise<WebSigner> {
  const raw = new Uint8Array(await crypto.subtle.exportKey('raw', keys.publicKey));
  return {
    did: did ?? didFromPublicKey(raw),
    sign: async (bytes) =>
      new Uint8Array(
        await crypto.subtle.sign('Ed25519', keys.privateKey, bytes as Uint8Array<ArrayBuffer>),
      ),
  };
}
