import type { Result } from '@sibyl/protocol';
import { LruMap, textBytes } from '@sibyl/protocol/lru-map';
import { equalBytes, startsWith } from '../codec/bytes.js';
import { decodeCbor, TOO_MANY_VALUES } from '../codec/cbor.js';
import { type Ipld, type IpldMap, isIpldMap, isUcanLink, Link } from '../codec/ipld.js';
import {
  type Block,
  type Capability,
  decodePrincipal,
  encodeUcanFields,
  LIMITS,
  SIGNATURE_HEAD,
  SIGNATURE_LENGTH,
  UCAN_VERSION,
  type Ucan,
  type UcanPayload,
} from '../codec/ucan.js';
import { refuse, type UcanError } from '../errors.js';

/** Reads a block as a UCAN 0.9.1 in CBOR form that has no second spelling. */
export function readUcan({ link, bytes }: Block): Result<Ucan, UcanError> {
  const fields = decodeCbor(bytes);
  if (fields.error === TOO_MANY_VALUES) return refuse('too_many_values', fields.error);
  if (fields.error !== undefined) return refuse('ucan_malformed', fields.error);
  if (!isIpldMap(fields.ok)) return refuse('ucan_malformed', 'not a map');
  const { v, s, iss, aud } = fields.ok;
  if (v !== UCAN_VERSION) return refuse('ucan_version', `not ${UCAN_VERSION}`);
  if (!isBytes(s) || !isBytes(iss) || !isBytes(aud)) return refuse('ucan_malformed', 's, iss, aud');
  const parties = readParties(iss, aud);
  if (parties.error) return parties;
  const payload = readPayload(fields.ok, parties.ok);
  if (payload.error) return payload;
  // Anything the model does not hold, such as an unknown key or an empty `fct`, is lost when encoded again.
  if (!equalBytes(encodeUcanFields(payload.ok, { s, iss, aud }), bytes)) {
    return refuse('ucan_not_canonical', 'encodes to other bytes');
  }
  if (s.length !== SIGNATURE_LENGTH || !startsWith(s, SIGNATURE_HEAD)) {
    return refuse('signature_malformed', 'not 64 bytes of EdDSA');
  }
  const signature = s.subarray(SIGNATURE_HEAD.length);
  return { ok: { ...payload.ok, cid: link.toString(), bytes, signature } };
}

type Parties = Pick<UcanPayload, 'issuer' | 'audience'>;

function readPayload(fields: IpldMap, parties: Parties): Result<UcanPayload, UcanError> {
  const capabilities = readCapabilities(fields.att);
  if (capabilities.error) return capabilities;
  const { exp, nbf, nnc, fct = [], prf } = fields;
  if (exp !== null && !isTime(exp)) return refuse('ucan_malformed', 'exp');
  if (nbf !== undefined && !isTime(nbf)) return refuse('ucan_malformed', 'nbf');
  if (nnc !== undefined && typeof nnc !== 'string') return refuse('ucan_malformed', 'nnc');
  if (!isListWith(fct, isIpldMap)) return refuse('ucan_malformed', 'fct');
  if (!isListWith(prf, isProof)) return refuse('ucan_malformed', 'prf');
  return {
    ok: {
      ...parties,
      capabilities: capabilities.ok,
      expiration: exp,
      ...(nbf !== undefined && { notBefore: nbf }),
      ...(nnc !== undefined && { nonce: nnc }),
      facts: fct,
      proofs: prf,
    },
  };
}

function readParties(iss: Uint8Array, aud: Uint8Array): Result<Parties, UcanError> {
  const issuer = readPrincipal(iss);
  if (!issuer) return refuse('principal_unsupported', 'iss');
  const audience = readPrincipal(aud);
  if (!audience) return refuse('principal_unsupported', 'aud');
  return { ok: { issuer, audience } };
}

// Base58 is expensive, and the same oracle and callers appear again and again.
const principals = new LruMap<string, string>({
  maxBytes: 512 * 1024,
  measure: (did, key) => textBytes(did) + textBytes(key),
});

function readPrincipal(bytes: Uint8Array): string | undefined {
  const key = Buffer.from(bytes).toString('latin1');
  const known = principals.get(key);
  if (known !== undefined) return known;
  const did = decodePrincipal(bytes);
  if (did !== undefined) principals.set(key, did);
  return did;
}

const isBytes = (value: Ipld | undefined): value is Uint8Array => value instanceof Uint8Array;

const isTime = (value: Ipld | undefined): value is number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;

const isProof = (value: Ipld): value is Link => value instanceof Link && isUcanLink(value);

function isListWith<T extends Ipld>(
  value: Ipld | undefined,
  isItem: (item: Ipld) => item is T,
): value is readonly T[] {
  return Array.isArray(value) && value.every(isItem);
}

/** Reads `att`, refusing any field besides can, with and nb: an unknown one might be a limit. */
function readCapabilities(att: Ipld | undefined): Result<readonly Capability[], UcanError> {
  if (!Array.isArray(att)) return refuse('ucan_malformed', 'att');
  if (att.length > LIMITS.capabilities) {
    return refuse('too_many_capabilities', `${att.length} capabilities`);
  }
  const capabilities = att.map(readCapability).filter((capability) => capability !== undefined);
  return capabilities.length === att.length
    ? { ok: capabilities }
    : refuse('ucan_malformed', 'a capability');
}

function readCapability(value: Ipld): Capability | undefined {
  if (!isIpldMap(value)) return undefined;
  const { can, with: resource, nb, ...others } = value;
  if (Object.keys(others).length > 0 || (nb !== undefined && !isIpldMap(nb))) return undefined;
  if (typeof can !== 'string' || !isAbility(can)) return undefined;
  if (typeof resource !== 'string' || !isResource(resource)) return undefined;
  return { can, with: resource, ...(nb && { nb }) };
}

/** Host names of other letters take a parser time that grows with the square of their length. */
const MAX_INTERNATIONAL_LENGTH = 512;

function isResource(text: string): boolean {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters of one byte.
  const isFast = text.length <= MAX_INTERNATIONAL_LENGTH || /^[\x00-\x7f]*$/.test(text);
  return isFast && URL.canParse(text);
}

// ucanto lowers the case of abilities, so one with capitals would not keep its bytes there.
function isAbility(can: string): boolean {
  return can === '*' || (can.slice(1, -1).includes('/') && can === can.toLowerCase());
}
