import { OracleClientError } from '../oracle-client-error.js';

/** Multicodec of an Ed25519 private key, then of its public key, as ucanto lines them up. */
const PRIVATE_HEAD = [0x80, 0x26];
const PUBLIC_HEAD = [0xed, 0x01];
const HEX_SEED = /^[0-9a-f]{64}$/i;

/** The 32 secret bytes of a key and, where the text holds it, the public half. */
export interface KeyBytes {
  readonly seed: Uint8Array;
  readonly publicKey?: Uint8Array;
}

/** Writes a private key as ucanto and the command line do: `M` and base64. */
export function writeKeyText({ seed, publicKey }: Required<KeyBytes>): string {
  const bytes = [...PRIVATE_HEAD, ...seed, ...PUBLIC_HEAD, ...publicKey];
  return `M${btoa(String.fromCharCode(...bytes))}`;
}

/** Reads what `writeKeyText` writes, or a seed as 64 hex digits. */
export function readKeyText(text: string): KeyBytes {
  const trimmed = text.trim();
  if (HEX_SEED.test(trimmed)) return { seed: bytesOfHex(trimmed) };
  const bytes = trimmed.startsWith('M') ? bytesOfBase64(trimmed.slice(1)) : [];
  if (!holds(bytes, 0, PRIVATE_HEAD) || !holds(bytes, 34, PUBLIC_HEAD) || bytes.length !== 68) {
    throw new OracleClientError('key_invalid', 'This is not a private key as it was exported');
  }
  return { seed: Uint8Array.from(bytes.slice(2, 34)), publicKey: Uint8Array.from(bytes.slice(36)) };
}

const holds = (bytes: readonly number[], at: number, head: readonly number[]): boolean =>
  head.every((byte, i) => bytes[at + i] === byte);

const bytesOfHex = (text: string): Uint8Array =>
  Uint8Array.from(text.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));

function bytesOfBase64(text: string): number[] {
  try {
    return Array.from(atob(text), (character) => character.charCodeAt(0));
  } catch {
    return [];
  }
}
