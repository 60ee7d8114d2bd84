import { OracleClientError } from '../errors.js';

/** Precedes the seed in PKCS #8. */
const PKCS8_PREFIX = [
  0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
/** Multicodec prefixes of an Ed25519 private key and its public key, in ucanto's format. */
const PRIVATE_KEY_PREFIX = [0x80, 0x26];
const PUBLIC_KEY_PREFIX = [0xed, 0x01];
const HEX_SEED = /^[0-9a-f]{64}$/i;

/** The secret of an Ed25519 key. */
export const SEED_BYTES = 32;

export function requireSubtleCrypto(): SubtleCrypto {
  // Undefined on pages without TLS, except on localhost.
  if (globalThis.crypto?.subtle) return crypto.subtle;
  throw new OracleClientError(
    'unsupported_platform',
    'WebCrypto is not available. Open this page over https:// or on localhost.',
  );
}

export async function importSeed(
  seed: Uint8Array,
  as: 'extractable' | 'sealed',
): Promise<CryptoKey> {
  const pkcs8 = Uint8Array.from([...PKCS8_PREFIX, ...seed]);
  return requireSubtleCrypto().importKey('pkcs8', pkcs8, 'Ed25519', as === 'extractable', ['sign']);
}

export async function importPublicKey(raw: Uint8Array): Promise<CryptoKey> {
  return requireSubtleCrypto().importKey('raw', Uint8Array.from(raw), 'Ed25519', true, ['verify']);
}

export async function exportSeed(privateKey: CryptoKey): Promise<Uint8Array> {
  return new Uint8Array(await requireSubtleCrypto().exportKey('pkcs8', privateKey)).slice(
    PKCS8_PREFIX.length,
  );
}

/** Reads the public key from the private key's JWK, the only way WebCrypto offers. */
export async function exportPublicKey(privateKey: CryptoKey): Promise<Uint8Array> {
  const { x = '' } = await requireSubtleCrypto().exportKey('jwk', privateKey);
  return parseBase64(x.replaceAll('-', '+').replaceAll('_', '/'));
}

/** Formats a private key like ucanto and the command line: `M` and base64. */
export async function formatPrivateKey(seed: Uint8Array): Promise<string> {
  const publicKey = await exportPublicKey(await importSeed(seed, 'extractable'));
  const bytes = [...PRIVATE_KEY_PREFIX, ...seed, ...PUBLIC_KEY_PREFIX, ...publicKey];
  return `M${formatBase64(Uint8Array.from(bytes))}`;
}

/** Parses the output of `formatPrivateKey`, or a seed of 64 hex digits; returns the seed. */
export async function parsePrivateKey(text: string): Promise<Uint8Array> {
  const trimmed = text.trim();
  if (HEX_SEED.test(trimmed)) return parseHex(trimmed);
  const bytes = trimmed.startsWith('M') ? tryParseBase64(trimmed.slice(1)) : [];
  if (
    !startsWithAt(bytes, 0, PRIVATE_KEY_PREFIX) ||
    !startsWithAt(bytes, 34, PUBLIC_KEY_PREFIX) ||
    bytes.length !== 68
  ) {
    throw new OracleClientError('key_invalid', 'This is not a valid private key');
  }
  const seed = Uint8Array.from(bytes.slice(2, 34));
  const publicKey = await exportPublicKey(await importSeed(seed, 'extractable'));
  if (!startsWithAt(bytes, 36, [...publicKey])) {
    throw new OracleClientError(
      'key_invalid',
      'Invalid private key: the public key does not match',
    );
  }
  return seed;
}

export const formatBase64 = (bytes: Uint8Array): string => btoa(String.fromCharCode(...bytes));

/** Throws on invalid base64. */
export const parseBase64 = (text: string): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(atob(text), (character) => character.charCodeAt(0));

function tryParseBase64(
  text: string,
): ArrayLike<number> & { slice(from: number, to?: number): ArrayLike<number> } {
  try {
    return parseBase64(text);
  } catch {
    return [];
  }
}

const startsWithAt = (bytes: ArrayLike<number>, at: number, head: readonly number[]): boolean =>
  head.every((byte, i) => bytes[at + i] === byte);

const parseHex = (text: string): Uint8Array =>
  Uint8Array.from(text.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
