import { base32, base64, concat, readVarint, startsWith } from './bytes.js';

/** What a UCAN's caveats and facts may hold. */
export type Ipld = null | boolean | number | string | Uint8Array | Link | readonly Ipld[] | IpldMap;

export interface IpldMap {
  readonly [key: string]: Ipld;
}

export function isIpldMap(value: Ipld | undefined): value is IpldMap {
  return (
    typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype
  );
}

/** CIDv1, dag-cbor, sha2-256 of 32 bytes: the only form a UCAN block may have. */
const UCAN_CID = Uint8Array.of(0x01, 0x71, 0x12, 0x20);

export const CID_LENGTH = 36;

/** A CID, kept as its bytes. */
export class Link {
  #text: string | undefined;

  constructor(readonly bytes: Uint8Array) {}

  toString(): string {
    this.#text ??= `b${base32(this.bytes)}`;
    return this.#text;
  }
}

/** Whether a link may name a block of a token. */
export const isUcanLink = ({ bytes }: Link): boolean =>
  bytes.length === CID_LENGTH && startsWith(bytes, UCAN_CID);

/** The link of a block, given the SHA-256 of its bytes. */
export const linkFromDigest = (digest: Uint8Array): Link => new Link(concat([UCAN_CID, digest]));

/** Whether the bytes are one whole CIDv1 and nothing else. */
export function isCidV1(bytes: Uint8Array): boolean {
  let offset = 0;
  let value = 1;
  for (let field = 0; field < 4; field += 1) {
    const varint = readVarint(bytes, offset);
    if (!varint || (field === 0 && varint.value !== 1)) return false;
    ({ value, next: offset } = varint);
  }
  return bytes.length - offset === value;
}

/** DAG-JSON text: keys in order, links as `{"/":cid}`, bytes as `{"/":{"bytes":base64}}`. */
export function encodeDagJson(value: Ipld): string {
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  if (value instanceof Link) return `{"/":"${value}"}`;
  if (value instanceof Uint8Array) {
    return `{"/":{"bytes":"${base64(value).replace(/=+$/, '')}"}}`;
  }
  if (Array.isArray(value)) return `[${value.map(encodeDagJson).join(',')}]`;
  const map = value as IpldMap;
  // The default sort compares UTF-16 units, exactly as ucanto's encoder does.
  const fields = Object.keys(map)
    .sort()
    .map((key) => `${JSON.stringify(key)}:${encodeDagJson(map[key] as Ipld)}`);
  return `{${fields.join(',')}}`;
}
