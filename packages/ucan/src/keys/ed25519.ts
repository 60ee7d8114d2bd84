import { createPublicKey, type KeyObject, verify } from 'node:crypto';
import { LruMap, textBytes } from '@sibyl/server-kit';

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
