import { createHash } from 'node:crypto';
import { concat, varint } from '../../src/codec/bytes.js';
import { encodeCbor } from '../../src/codec/cbor.js';
import { type Ipld, Link, linkFromDigest } from '../../src/codec/ipld.js';
import {
  encodePrincipal,
  SIGNATURE_HEAD,
  signingBytes,
  type UcanPayload,
} from '../../src/codec/ucan.js';
import type { Signer } from '../../src/keys/signer.js';
import { alice, NOW, oracle } from './verifier.js';

/** CBOR that is inserted unchanged, however malformed. */
export class Raw {
  constructor(readonly bytes: Uint8Array) {}
  static of(...bytes: number[]): Raw {
    return new Raw(Uint8Array.from(bytes));
  }
}

/** Map entries in the order they are to be written. */
export class Entries {
  constructor(readonly list: readonly (readonly [Forgeable, Forgeable])[]) {}
}

export type Forgeable = Ipld | Raw | Entries | readonly Forgeable[] | ForgeableMap;
interface ForgeableMap {
  readonly [key: string]: Forgeable;
}

/** Encodes without any of the encoder's scruples. */
export function forgeCbor(value: Forgeable): Uint8Array {
  if (value instanceof Raw) return value.bytes;
  if (Array.isArray(value)) {
    const { length } = value;
    const head = length < 24 ? [0x80 | length] : [0x98, length];
    return concat([head, ...value.map(forgeCbor)]);
  }
  if (value instanceof Entries) {
    return concat([[0xa0 | value.list.length], ...value.list.flat().map(forgeCbor)]);
  }
  if (typeof value !== 'object' || value === null) return encodeCbor(value);
  if (value instanceof Uint8Array || value instanceof Link) return encodeCbor(value);
  const keys = Object.keys(value).sort((a, b) => a.length - b.length || (a < b ? -1 : 1));
  return forgeCbor(
    new Entries(keys.map((key) => [key, (value as ForgeableMap)[key] as Forgeable])),
  );
}

export interface ForgedBlock {
  readonly link: Link;
  readonly bytes: Uint8Array;
}

export function createBlock(bytes: Uint8Array): ForgedBlock {
  return { link: linkFromDigest(createHash('sha256').update(bytes).digest()), bytes };
}

export type Fields = Record<string, Forgeable>;

export interface Forgery {
  readonly signer?: Signer;
  readonly payload?: Partial<UcanPayload>;
  /** Changes the CBOR fields after signing. */
  readonly fields?: (fields: Fields) => Forgeable;
  readonly signature?: (signature: Uint8Array) => Uint8Array;
}

/** An auth invocation of alice with exactly the named things changed, signed as it is. */
export function forgeUcan(forgery: Forgery = {}): ForgedBlock {
  const { signer = alice } = forgery;
  const payload: UcanPayload = {
    issuer: signer.did,
    audience: oracle.did,
    capabilities: [{ can: '*', with: 'ixo:oracle' }],
    expiration: NOW + 300,
    facts: [],
    proofs: [],
    ...forgery.payload,
  };
  const signature = concat([SIGNATURE_HEAD, signer.sign(signingBytes(payload))]);
  const fields = toFields(payload, forgery.signature?.(signature) ?? signature);
  return createBlock(forgeCbor(forgery.fields?.(fields) ?? fields));
}

function toFields(payload: UcanPayload, signature: Uint8Array): Fields {
  return {
    v: '0.9.1',
    s: signature,
    iss: encodePrincipal(payload.issuer) ?? Raw.of(),
    aud: encodePrincipal(payload.audience) ?? Raw.of(),
    att: payload.capabilities as never,
    exp: payload.expiration,
    prf: payload.proofs,
    ...(payload.facts.length > 0 && { fct: payload.facts }),
    ...(payload.nonce !== undefined && { nnc: payload.nonce }),
    ...(payload.notBefore !== undefined && { nbf: payload.notBefore }),
  };
}

export const archiveRoot = (link: Link): ForgedBlock =>
  createBlock(forgeCbor({ 'ucan@0.9.1': link }));

export const section = (...parts: readonly Uint8Array[]): Uint8Array => {
  const bytes = concat(parts);
  return concat([varint(bytes.length), bytes]);
};

export const carHeader = (header: Forgeable): Uint8Array => section(forgeCbor(header));

export const carBlock = ({ link, bytes }: ForgedBlock): Uint8Array => section(link.bytes, bytes);

/** A CAR about the last of the UCANs. */
export function forgeCar(...ucans: readonly ForgedBlock[]): Uint8Array {
  const root = archiveRoot((ucans.at(-1) as ForgedBlock).link);
  return concat([
    carHeader({ roots: [root.link], version: 1 }),
    carBlock(root),
    ...ucans.map(carBlock),
  ]);
}

export const toText = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');

export const forgeToken = (...ucans: readonly ForgedBlock[]): string => toText(forgeCar(...ucans));

/** A token of alice, valid but for its length, padded with a fact up to this many characters. */
export function forgeTokenOfLength(characters: number): string {
  const tokenWith = (size: number) =>
    forgeToken(forgeUcan({ payload: { facts: [{ a: 'x'.repeat(size) }] } }));
  const overhead = tokenWith(1000).length - Math.ceil((1000 * 4) / 3);
  for (let size = Math.floor(((characters - overhead) * 3) / 4) - 8; ; size += 1) {
    const token = tokenWith(size);
    if (token.length >= characters) return token;
  }
}
