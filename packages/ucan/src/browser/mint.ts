import type { Result } from '@sibyl/protocol';
import { type Block, encodeArchiveRoot, encodeCar } from '../codec/archive.js';
import { base64 } from '../codec/base-text.js';
import { concat } from '../codec/bytes.js';
import type { IpldMap } from '../codec/ipld.js';
import { linkOfDigest } from '../codec/link.js';
import {
  AUTH_CAPABILITY,
  type Capability,
  encodeUcan,
  SIGNATURE_HEAD,
  signingBytes,
} from '../codec/ucan-block.js';
import type { UcanFault } from '../fault.js';
import type { MintedToken } from '../mint/minted-token.js';
import type { WebSigner } from './web-signer.js';

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

/** Mints the bearer that says who is calling (contract B8). */
export function mintAuthInvocation(
  request: WebAuthRequest,
): Promise<Result<MintedToken, UcanFault>> {
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
): Promise<Result<MintedToken, UcanFault>> {
  const { signer, ...fields } = request;
  const payload = { facts: [], ...fields, issuer: signer.did, proofs: [] };
  const signature = await signer.sign(signingBytes(payload));
  const bytes = encodeUcan(payload, concat([SIGNATURE_HEAD, signature]));
  if (!bytes) return { error: { code: 'mint_invalid', detail: 'issuer or audience is no DID' } };
  const ucan = await blockOf(bytes);
  const root = await blockOf(encodeArchiveRoot(ucan.link));
  const token = base64(encodeCar(root, [ucan]));
  return { ok: { cid: ucan.link.toString(), expiration: request.expiration, token } };
}

async function blockOf(bytes: Uint8Array): Promise<Block> {
  const digest = await crypto.subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>);
  return { link: linkOfDigest(new Uint8Array(digest)), bytes };
}
