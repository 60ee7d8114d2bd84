import { decodeBase58 } from '../base58.js';
import { ED25519_KEY_BYTES, ed25519FromMulticodec } from '../did-key.js';
import { fieldOf } from './fields.js';

/** Raw bytes do not say what they are (X25519 keys are as long), so the method's type must. */
const ED25519_TYPE = 'Ed25519VerificationKey';
const SELF_DESCRIBING_TYPE = 'Multikey';

/** The raw Ed25519 key of a verification method; undefined for other kinds and for malformed material. */
export function ed25519KeyOf(method: Record<string, unknown>): Uint8Array | undefined {
  const { type } = method;
  if (typeof type !== 'string') return undefined;
  const saysEd25519 = type.startsWith(ED25519_TYPE);
  if (!saysEd25519 && type !== SELF_DESCRIBING_TYPE) return undefined;
  const multibase = textOf(method, 'publicKeyMultibase');
  // In base58 multibase the multicodec prefix is part of the key's format.
  if (multibase?.startsWith('z')) return fromMulticodec(decodeBase58(multibase.slice(1)));
  const bytes = multibase ? decodeHexMultibase(multibase) : decodePlain(method);
  return saysEd25519 && bytes?.length === ED25519_KEY_BYTES ? bytes : fromMulticodec(bytes);
}

function fromMulticodec(bytes: Uint8Array | undefined): Uint8Array | undefined {
  return bytes && ed25519FromMulticodec(bytes);
}

/** The chain writes raw keys so; others put a multicodec prefix before them. */
function decodeHexMultibase(text: string): Uint8Array | undefined {
  return /^[fF]/.test(text) ? decodeHex(text.slice(1)) : undefined;
}

function decodePlain(method: Record<string, unknown>): Uint8Array | undefined {
  const base58 = textOf(method, 'publicKeyBase58');
  if (base58) return decodeBase58(base58);
  const hex = textOf(method, 'publicKeyHex');
  return hex ? decodeHex(hex) : undefined;
}

function decodeHex(text: string): Uint8Array | undefined {
  if (!/^(?:[0-9a-fA-F]{2}){1,64}$/.test(text)) return undefined;
  return Uint8Array.from(Buffer.from(text, 'hex'));
}

function textOf(method: Record<string, unknown>, name: string): string | undefined {
  const value = fieldOf(method, name);
  return typeof value === 'string' && value !== '' ? value : undefined;
}
