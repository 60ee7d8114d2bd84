import type { Result } from '@sibyl/protocol';
import { equalBytes } from '../codec/bytes.js';
import { refuse, type UcanFault } from '../fault.js';
import { type Signer, signerFromSeed } from './signer.js';

/** Multicodec of an Ed25519 private key, then of its public key, as ucanto lines them up. */
const PRIVATE_HEAD = Uint8Array.of(0x80, 0x26);
const PUBLIC_HEAD = Uint8Array.of(0xed, 0x01);
const LENGTH = 68;
const HEX_SEED = /^[0-9a-f]{64}$/i;

/** Reads a private key as ucanto writes it (`M…`) or as the 64 hex digits of its seed. */
export function signerFromPrivateKey(text: string): Result<Signer, UcanFault> {
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
