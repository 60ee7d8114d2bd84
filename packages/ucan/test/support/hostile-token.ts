import { concat, utf8 } from '../../src/codec/bytes.js';
import type { UcanPayload } from '../../src/codec/ucan.js';
import type { UcanErrorCode } from '../../src/errors.js';
import { type Fields, type Forgeable, type Forgery, forgeToken, forgeUcan } from './forge.js';

/** A token with one thing wrong, and the error that names it. */
export interface HostileToken {
  readonly name: string;
  readonly code: UcanErrorCode;
  readonly token: unknown;
  /** How it is presented; an invocation unless it is only wrong as a delegation. */
  readonly purpose?: 'invocation' | 'delegation';
}

export const forged = (forgery: Forgery): string => forgeToken(forgeUcan(forgery));
export const withFields = (change: (fields: Fields) => Forgeable): string =>
  forged({ fields: change });
export const withPayload = (payload: Partial<UcanPayload>): string => forged({ payload });
export const malformed = (name: string, token: string): HostileToken => ({
  name,
  code: 'ucan_malformed',
  token,
});
export const notCanonical = (name: string, token: string): HostileToken => ({
  name,
  code: 'ucan_not_canonical',
  token,
});

/** A DID as text in the bytes of a UCAN. */
export function didText(did: string): Uint8Array {
  return concat([[0x9d, 0x1a], utf8(did.slice(4))]);
}
