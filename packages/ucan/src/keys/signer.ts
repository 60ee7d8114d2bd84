import {
  createHash,
  createPrivateKey,
  createPublicKey,
  type KeyObject,
  randomBytes,
  sign,
  verify,
} from 'node:crypto';
import type { Result } from '@sibyl/protocol';
import { LruMap, textBytes } from '@sibyl/protocol/lru-map';
import { equalBytes } from '../codec/bytes.js';
import { encodePrincipal } from '../codec/ucan.js';
import { didFromPublicKey } from '../did/did-key.js';
import { refuse, type UcanError } from '../errors.js';

const SEED_LENGTH = 32;
const PKCS8_HEAD = Buffer.from('302e020100300506032b657004220420', 'hex');

/** An Ed25519 key and the DID it signs under. */
export interface Signer {
  readonly did: string;
  /** The key's own did:key, even if `did` is another. */
  readonly keyDid: string;
  readonly publicKey: Uint8Array;
  sign(bytes: Uint8Array): Uint8Array;
  /** The 32 secret bytes. */
  exportSeed(): Uint8Array;
  /** The same key under another DID, whose document must list it. */
  withDid(did: string): Result<Signer, UcanError>;
}

/** The signer of 32 secret bytes. */
export function signerFromSeed(seed: Uint8Array): Result<Signer, UcanError> {
  if (seed.length !== SEED_LENGTH) return refuse('key_invalid', `a seed has ${SEED_LENGTH} bytes`);
  return { ok: createSigner(Uint8Array.from(seed)) };
}

/** The signer of a mnemonic: its seed is the SHA-256 of the trimmed text. */
export function signerFromMnemonic(text: string): Result<Signer, UcanError> {
  const trimmed = text.trim();
  if (trimmed === '') return refuse('key_invalid', 'the mnemonic is empty');
  return signerFromSeed(createHash('sha256').update(trimmed).digest());
}

export function generateSigner(): Signer {
  return createSigner(Uint8Array.from(randomBytes(SEED_LENGTH)));
}

function createSigner(seed: Uint8Array): Signer {
  const der = Buffer.concat([PKCS8_HEAD, seed]);
  const privateKey = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
  const publicKey = rawPublicKey(privateKey);
  const keyDid = didFromPublicKey(publicKey);
  const withDid = (did: string): Result<Signer, UcanError> =>
    did === keyDid || (encodePrincipal(did) && !did.startsWith('did:key:'))
      ? { ok: { ...signer, did } }
      : refuse('key_invalid', `${did} is not a DID this key can sign under`);
  const signer: Signer = {
    did: keyDid,
    keyDid,
    publicKey,
    sign: (bytes) => sign(null, bytes, privateKey),
    exportSeed: () => Uint8Array.from(seed),
    withDid,
  };
  return signer;
}

function rawPublicKey(privateKey: KeyObject): Uint8Array {
  const der = createPublicKey(privateKey).export({ format: 'der', type: 'spki' });
  return Uint8Array.from(der.subarray(-SEED_LENGTH));
}

/** Multicodec of an Ed25519 private key, then of its public key, as ucanto lines them up. */
const PRIVATE_HEAD = Uint8Array.of(0x80, 0x26);
const PUBLIC_HEAD = Uint8Array.of(0xed, 0x01);
const LENGTH = 68;
const HEX_SEED = /^[0-9a-f]{64}$/i;

/** Reads a private key as ucanto writes it (`M…`) or as the 64 hex digits of its seed. */
export function signerFromPrivateKey(text: string): Result<Signer, UcanError> {
  const trimmed = text.trim();
  if (HEX_SEED.test(trimmed)) return signerFromSeed(Buffer.from(trimmed, 'hex'));
  const bytes = Buffer.from(trimmed.slice(1), 'base64');
  if (!trimmed.startsWith('M') || bytes.toString('base64') !== trimmed.slice(1)) {
    return refuse('key_invalid', 'neither 64 hex digits nor a key as ucanto writes it (M…)');
  }
  if (
    bytes.length !== LENGTH ||
    !equalBytes(bytes.subarray(0, 2), PRIVATE_HEAD) ||
    !equalBytes(bytes.subarray(34, 36), PUBLIC_HEAD)
  ) {
    return refuse('key_invalid', 'not an Ed25519 private key');
  }
  const signer = signerFromSeed(bytes.subarray(2, 34));
  if (signer.ok && !equalBytes(signer.ok.publicKey, bytes.subarray(36))) {
    return refuse('key_invalid', 'its two halves do not belong together');
  }
  return signer;
}

/** Writes the private key as ucanto does. */
export function exportPrivateKey(signer: Signer): string {
  const bytes = Buffer.concat([PRIVATE_HEAD, signer.exportSeed(), PUBLIC_HEAD, signer.publicKey]);
  return `M${bytes.toString('base64')}`;
}

const KEY_LENGTH = 32;
const SIGNATURE_LENGTH = 64;
const SPKI_HEAD = Buffer.from('302a300506032b6570032100', 'hex');

// Little-endian numbers as hex, read from the last byte: the order of the group and of the field.
const GROUP_ORDER = 0x1000000000000000000000000000000014def9dea2f79cd65812631a5cf5d3edn;
const FIELD_PRIME = 2n ** 255n - 19n;

/** The y coordinates of the eight points of small order; the sign of x does not matter. */
const SMALL_ORDER_Y: ReadonlySet<bigint> = new Set([
  0n,
  1n,
  FIELD_PRIME - 1n,
  0x05fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826n,
  0x7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7n,
]);

/** What OpenSSL keeps for a public key, outside of the heap. */
const KEY_OBJECT_BYTES = 2048;

const keyObjects = new LruMap<string, KeyObject>({
  maxBytes: 2 * 1024 * 1024,
  measure: (_, name) => textBytes(name) + KEY_OBJECT_BYTES,
});

/** Whether these are the 32 bytes of a point that one private key, and not any message, can sign for. */
export function isSoundPublicKey(key: Uint8Array): boolean {
  if (key.length !== KEY_LENGTH) return false;
  const y = littleEndian(key) & (2n ** 255n - 1n);
  return y < FIELD_PRIME && !SMALL_ORDER_Y.has(y);
}

/** Whether S is below the group order; a larger one would be a second signature for nothing. */
export function isCanonicalSignature(signature: Uint8Array): boolean {
  return (
    signature.length === SIGNATURE_LENGTH &&
    littleEndian(signature.subarray(KEY_LENGTH)) < GROUP_ORDER
  );
}

/** Verifies an Ed25519 signature in its only form, under a sound key. */
export function verifyEd25519(
  key: Uint8Array,
  message: Uint8Array,
  signature: Uint8Array,
): boolean {
  if (!isCanonicalSignature(signature) || !isSoundPublicKey(key)) return false;
  const keyObject = toKeyObject(key);
  return keyObject !== undefined && verify(null, message, keyObject, signature);
}

function toKeyObject(key: Uint8Array): KeyObject | undefined {
  const name = Buffer.from(key).toString('base64');
  const known = keyObjects.get(name);
  if (known) return known;
  try {
    const der = Buffer.concat([SPKI_HEAD, key]);
    const keyObject = createPublicKey({ key: der, format: 'der', type: 'spki' });
    keyObjects.set(name, keyObject);
    return keyObject;
  } catch {
    return undefined;
  }
}

function littleEndian(bytes: Uint8Array): bigint {
  return BigInt(`0x${Buffer.from(bytes).reverse().toString('hex')}`);
}
