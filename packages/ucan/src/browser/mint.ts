import type { Result } from '@sibyl/protocol';
import { base64, concat } from '../codec/bytes.js';
import { type IpldMap, linkFromDigest } from '../codec/ipld.js';
import {
  AUTH_CAPABILITY,
  type Block,
  type Capability,
  encodeArchiveRoot,
  encodeCar,
  encodeUcan,
  type MintedToken,
  SIGNATURE_HEAD,
  signingBytes,
} from '../codec/ucan.js';
import { didFromPublicKey } from '../did/did-key.js';
import type { UcanError } from '../errors.js';

export interface WebDelegationRequest {
  readonly signer: WebSigner;
  readonly audience: string;
  readonly capabilities: readonly Capability[];
  /** Unix seconds. */
  readonly expiration: number;
  readonly notBefore?: number;
  readonly nonce?: string;
  readonly facts?: readonly IpldMap[];
}

export interface WebAuthRequest {
  readonly signer: WebSigner;
  /** The oracle's DID. */
  readonly audience: string;
  readonly ttlSeconds?: number;
  /** Unix seconds now, for a client that knows the server's clock better than its own. */
  readonly now?: number;
}

/** Mints the bearer token that authenticates the caller. */
export function mintAuthInvocation(
  request: WebAuthRequest,
): Promise<Result<MintedToken, UcanError>> {
  const { signer, audience, ttlSeconds = 300, now = Math.floor(Date.now() / 1000) } = request;
  const nonce = base64(crypto.getRandomValues(new Uint8Array(12)));
  return mintDelegation({
    signer,
    audience,
    capabilities: [AUTH_CAPABILITY],
    expiration: now + ttlSeconds,
    facts: [{ nonce }],
  });
}

/** Mints a delegation from the holder of the key, without proofs. */
export async function mintDelegation(
  request: WebDelegationRequest,
): Promise<Result<MintedToken, UcanError>> {
  const { signer, ...fields } = request;
  const payload = { facts: [], ...fields, issuer: signer.did, proofs: [] };
  const signature = await signer.sign(signingBytes(payload));
  const bytes = encodeUcan(payload, concat([SIGNATURE_HEAD, signature]));
  if (!bytes) return { error: { code: 'mint_invalid', detail: 'issuer or audience is not a DID' } };
  const ucan = await createBlock(bytes);
  const root = await createBlock(encodeArchiveRoot(ucan.link));
  const token = base64(encodeCar(root, [ucan]));
  return { ok: { cid: ucan.link.toString(), expiration: request.expiration, token } };
}

async function createBlock(bytes: Uint8Array): Promise<Block> {
  const digest = await crypto.subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>);
  return { link: linkFromDigest(new Uint8Array(digest)), bytes };
}

/** An Ed25519 key held by WebCrypto, and the DID it signs under. */
export interface WebSigner {
  readonly did: string;
  sign(bytes: Uint8Array): Promise<Uint8Array>;
}

/** `CryptoKey`, whose type has another name in Node than in browsers. */
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
