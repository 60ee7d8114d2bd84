import {
  createHash,
  createPrivateKey,
  createPublicKey,
  type KeyObject,
  randomBytes,
  sign,
} from 'node:crypto';
import type { Result } from '@sibyl/protocol';
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
