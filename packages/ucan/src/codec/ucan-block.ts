import { base64url } from './base-text.js';
import { utf8 } from './bytes.js';
import { encodeCbor } from './cbor-encode.js';
import { encodeDagJson } from './dag-json.js';
import type { IpldMap } from './ipld.js';
import type { Link } from './link.js';
import { encodePrincipal } from './principal.js';

export const UCAN_VERSION = '0.9.1';

/** EdDSA as a varint, then the length of the 64 bytes that follow. */
export const SIGNATURE_HEAD = Uint8Array.of(0xed, 0xa1, 0x03, 0x40);
export const SIGNATURE_LENGTH = 68;

/** The right to do something to something, narrowed by caveats. */
export interface Capability {
  readonly can: string;
  readonly with: string;
  readonly nb?: IpldMap;
}

/** The one capability of an auth invocation (contract B8). */
export const AUTH_CAPABILITY: Capability = { can: '*', with: 'ixo:oracle' };

/** What a UCAN says; everything but the signature. */
export interface UcanPayload {
  readonly issuer: string;
  readonly audience: string;
  readonly capabilities: readonly Capability[];
  readonly expiration: number | null;
  readonly notBefore?: number;
  readonly nonce?: string;
  readonly facts: readonly IpldMap[];
  readonly proofs: readonly Link[];
}

const JWT_HEADER = base64url(utf8(`{"alg":"EdDSA","typ":"JWT","ucv":"${UCAN_VERSION}"}`));

/** The bytes an issuer signs. */
export function signingBytes(payload: UcanPayload): Uint8Array {
  const json = encodeDagJson({
    ...optionalFields(payload),
    iss: payload.issuer,
    aud: payload.audience,
    att: attenuations(payload),
    exp: payload.expiration,
    prf: payload.proofs.map(String),
  });
  return utf8(`${JWT_HEADER}.${base64url(utf8(json))}`);
}

/** The block of a UCAN, or nothing when issuer or audience is no DID it can carry. */
export function encodeUcan(payload: UcanPayload, signature: Uint8Array): Uint8Array | undefined {
  const iss = encodePrincipal(payload.issuer);
  const aud = encodePrincipal(payload.audience);
  return iss && aud && encodeUcanFields(payload, { iss, aud, s: signature });
}

/** The same, given the fields that the payload has in another form. */
export function encodeUcanFields(
  payload: UcanPayload,
  fields: Readonly<Record<'iss' | 'aud' | 's', Uint8Array>>,
): Uint8Array {
  return encodeCbor({
    ...optionalFields(payload),
    ...fields,
    v: UCAN_VERSION,
    att: attenuations(payload),
    exp: payload.expiration,
    prf: payload.proofs,
  });
}

// Absent and empty read the same, and ucanto leaves out what is empty.
function optionalFields({ facts, nonce, notBefore }: UcanPayload): IpldMap {
  return {
    ...(facts.length > 0 && { fct: facts }),
    ...(nonce && { nnc: nonce }),
    ...(notBefore && { nbf: notBefore }),
  };
}

function attenuations({ capabilities }: UcanPayload): IpldMap[] {
  return capabilities.map(({ can, with: resource, nb }) => ({
    can,
    with: resource,
    ...(nb && { nb }),
  }));
}
