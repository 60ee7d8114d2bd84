import type { Result } from '@sibyl/protocol';
import { decodeBase58, encodeBase58 } from '../codec/bytes.js';
import { type DidError, type DidResolver, refuseDid } from './did-resolver.js';

const PREFIX = 'did:key:z';
/** The varint of multicodec 0xed, Ed25519 public key. */
const ED25519 = [0xed, 0x01] as const;
export const ED25519_KEY_BYTES = 32;

/** Resolves Ed25519 did:key without any network. */
export function createDidKeyResolver(): DidResolver {
  return {
    async resolve(did) {
      const key = publicKeyFromDid(did);
      return key.ok ? { ok: [key.ok] } : { error: key.error };
    },
  };
}

/** Names the did:key of a raw 32-byte Ed25519 public key. */
export function didFromPublicKey(raw: Uint8Array): string {
  return PREFIX + encodeBase58(Uint8Array.from([...ED25519, ...raw]));
}

/** Reads the raw Ed25519 public key out of a did:key; fragments and other spellings are refused. */
export function publicKeyFromDid(did: string): Result<Uint8Array, DidError> {
  if (typeof did !== 'string' || !did.startsWith(PREFIX)) {
    return refuseDid('did_invalid', 'not a did:key in base58btc (did:key:z…)');
  }
  const bytes = decodeBase58(did.slice(PREFIX.length));
  if (!bytes) return refuseDid('did_invalid', 'the did:key is not base58btc or is too long');
  const key = ed25519FromMulticodec(bytes);
  if (key) return { ok: key };
  return startsAsEd25519(bytes)
    ? refuseDid('did_invalid', `an Ed25519 did:key holds ${ED25519_KEY_BYTES} bytes`)
    : refuseDid('did_unsupported', 'only Ed25519 did:key is supported');
}

/** The raw key of multicodec-prefixed bytes, undefined unless it is a whole Ed25519 key. */
export function ed25519FromMulticodec(bytes: Uint8Array): Uint8Array | undefined {
  if (!startsAsEd25519(bytes)) return undefined;
  if (bytes.length !== ED25519.length + ED25519_KEY_BYTES) return undefined;
  return bytes.slice(ED25519.length);
}

function startsAsEd25519(bytes: Uint8Array): boolean {
  return bytes[0] === ED25519[0] && bytes[1] === ED25519[1];
}
