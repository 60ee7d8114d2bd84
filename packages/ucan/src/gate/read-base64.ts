import type { Result } from '@sibyl/protocol';
import { refuse, type UcanFault } from '../fault.js';
import { LIMITS } from './limits.js';

/** Standard padded base64 in its only spelling: what it decodes to encodes to the same text. */
export function readBase64(token: unknown): Result<Uint8Array, UcanFault> {
  if (typeof token !== 'string') return refuse('token_not_string', `a ${typeof token}`);
  if (token.length > LIMITS.characters) {
    return refuse('token_too_long', `${token.length} characters`);
  }
  // The decoder passes over foreign characters and missing padding; the way back shows them.
  const bytes = Buffer.from(token, 'base64');
  if (bytes.toString('base64') !== token) return refuse('base64_invalid', 'not canonical');
  return { ok: bytes };
}
