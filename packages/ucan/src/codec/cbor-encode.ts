import { compareBytes, concat, utf8 } from './bytes.js';
import type { Ipld, IpldMap } from './ipld.js';
import { Link } from './link.js';

type Parts = ArrayLike<number>[];

/** DAG-CBOR: definite lengths, shortest integers, keys by length and then by bytes. */
export function encodeCbor(value: Ipld): Uint8Array {
  // Joined once at the end: joining the parts of parts would copy every byte once a level.
  const parts: Parts = [];
  write(value, parts);
  return concat(parts);
}

function write(value: Ipld, parts: Parts): void {
  if (value === null) parts.push([0xf6]);
  else if (typeof value === 'boolean') parts.push([value ? 0xf5 : 0xf4]);
  else if (typeof value === 'number') parts.push(encodeNumber(value));
  else if (typeof value === 'string') writeText(utf8(value), parts);
  else if (value instanceof Uint8Array) parts.push(head(2, value.length), value);
  // Tag 42, then the CID behind a zero byte, as DAG-CBOR writes links.
  else if (value instanceof Link)
    parts.push([0xd8, 42], head(2, value.bytes.length + 1), [0], value.bytes);
  else if (Array.isArray(value)) {
    parts.push(head(4, value.length));
    for (const item of value) write(item, parts);
  } else writeMap(value as IpldMap, parts);
}

function writeMap(map: IpldMap, parts: Parts): void {
  const keys = Object.keys(map).map((key) => [key, utf8(key)] as const);
  parts.push(head(5, keys.length));
  for (const [key, bytes] of keys.sort(([, a], [, b]) => compareBytes(a, b))) {
    writeText(bytes, parts);
    write(map[key] as Ipld, parts);
  }
}

function writeText(bytes: Uint8Array, parts: Parts): void {
  parts.push(head(3, bytes.length), bytes);
}

function encodeNumber(value: number): ArrayLike<number> {
  if (Number.isSafeInteger(value)) return value < 0 ? head(1, -1 - value) : head(0, value);
  const bytes = new Uint8Array(9);
  bytes[0] = 0xfb;
  new DataView(bytes.buffer).setFloat64(1, value);
  return bytes;
}

function head(major: number, value: number): number[] {
  const type = major << 5;
  if (value < 24) return [type | value];
  const size = value < 0x100 ? 1 : value < 0x10000 ? 2 : value < 0x100000000 ? 4 : 8;
  const out = [type | (24 + Math.log2(size))];
  for (let shift = size - 1; shift >= 0; shift -= 1) {
    out.push(Math.floor(value / 256 ** shift) % 256);
  }
  return out;
}
