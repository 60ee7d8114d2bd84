import type { Block } from '../codec/archive.js';
import { equalBytes, startsWith } from '../codec/bytes.js';
import { decodeCbor } from '../codec/cbor-decode.js';
import { type Ipld, type IpldMap, isIpldMap } from '../codec/ipld.js';
import { isUcanLink, Link } from '../codec/link.js';
import { decodePrincipal } from '../codec/principal.js';
import {
  encodeUcan,
  SIGNATURE_HEAD,
  SIGNATURE_LENGTH,
  UCAN_VERSION,
  type UcanPayload,
} from '../codec/ucan-block.js';
import { refuse, type UcanFault } from '../fault.js';
import type { Result } from '../result.js';
import { readCapabilities } from './read-capabilities.js';
import type { Ucan } from './token.js';

/** Reads a block as a UCAN 0.9.1 in CBOR form that has no second spelling. */
export function readUcan({ link, bytes }: Block): Result<Ucan, UcanFault> {
  const fields = decodeCbor(bytes);
  if (fields.error !== undefined) return refuse('ucan_malformed', fields.error);
  if (!isIpldMap(fields.ok)) return refuse('ucan_malformed', 'not a map');
  const { v, s } = fields.ok;
  if (v !== UCAN_VERSION) return refuse('ucan_version', `not ${UCAN_VERSION}`);
  if (!(s instanceof Uint8Array)) return refuse('ucan_malformed', 's');
  const payload = readPayload(fields.ok);
  if (payload.error) return payload;
  // Whatever the model does not hold, an unknown key or an empty `fct`, is lost on the way back.
  const again = encodeUcan(payload.ok, s);
  if (!again || !equalBytes(again, bytes)) {
    return refuse('ucan_not_canonical', 'encodes to other bytes');
  }
  if (s.length !== SIGNATURE_LENGTH || !startsWith(s, SIGNATURE_HEAD)) {
    return refuse('signature_malformed', 'not 64 bytes of EdDSA');
  }
  const signature = s.subarray(SIGNATURE_HEAD.length);
  return { ok: { ...payload.ok, cid: link.toString(), bytes, signature } };
}

function readPayload(fields: IpldMap): Result<UcanPayload, UcanFault> {
  const parties = readParties(fields);
  if (parties.error) return parties;
  const capabilities = readCapabilities(fields.att);
  if (capabilities.error) return capabilities;
  const { exp, nbf, nnc, fct = [], prf } = fields;
  if (exp !== null && !isTime(exp)) return refuse('ucan_malformed', 'exp');
  if (nbf !== undefined && !isTime(nbf)) return refuse('ucan_malformed', 'nbf');
  if (nnc !== undefined && typeof nnc !== 'string') return refuse('ucan_malformed', 'nnc');
  if (!isListOf(fct, isIpldMap)) return refuse('ucan_malformed', 'fct');
  if (!isListOf(prf, isProof)) return refuse('ucan_malformed', 'prf');
  return {
    ok: {
      ...parties.ok,
      capabilities: capabilities.ok,
      expiration: exp,
      ...(nbf !== undefined && { notBefore: nbf }),
      ...(nnc !== undefined && { nonce: nnc }),
      facts: fct,
      proofs: prf,
    },
  };
}

function readParties(fields: IpldMap): Result<Pick<UcanPayload, 'issuer' | 'audience'>, UcanFault> {
  const { iss, aud } = fields;
  if (!(iss instanceof Uint8Array)) return refuse('ucan_malformed', 'iss');
  if (!(aud instanceof Uint8Array)) return refuse('ucan_malformed', 'aud');
  const issuer = decodePrincipal(iss);
  if (!issuer) return refuse('principal_unsupported', 'iss');
  const audience = decodePrincipal(aud);
  if (!audience) return refuse('principal_unsupported', 'aud');
  return { ok: { issuer, audience } };
}

const isTime = (value: Ipld | undefined): value is number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;

const isProof = (value: Ipld): value is Link => value instanceof Link && isUcanLink(value);

function isListOf<T extends Ipld>(
  value: Ipld | undefined,
  isItem: (item: Ipld) => item is T,
): value is readonly T[] {
  return Array.isArray(value) && value.every(isItem);
}
