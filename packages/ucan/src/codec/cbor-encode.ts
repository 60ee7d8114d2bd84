import { compareBytes, concat, utf8 } from './bytes.js';
import type { Ipld, IpldMap } from './ipld.js';
import { Link } from './link.js';

/** DAG-CBOR: definite lengths, shortest integers, keys by length and then by bytes. */
export function encodeCbor(value: Ipld): Uint8Array {
  if (value === null) return Uint8Array.of(0xf6);
  switch (typeof value) {
    case 'boolean':
      return Uint8Array.of(value ? 0xf5 : 0xf4);
    case 'number':
      return encodeNumber(value);
    case 'string':
      return encodeText(value);
    default:
      return encodeObject(value);
  }
}

function encodeObject(value: Exclude<Ipld, null | boolean | number | string>): Uint8Array {
  if (value instanceof Uint8Array) return concat([head(2, value.length), value]);
  // Tag 42, then the CID behind a zero byte, as DAG-CBOR writes links.
  if (value instanceof Link) {
    return concat([[0xd8, 42], head(2, value.bytes.length + 1), [0], value.bytes]);
  }
  if (Array.isArray(value)) return concat([head(4, value.length), ...value.map(encodeCbor)]);
  const entries = Object.entries(value as IpldMap)
    .map(([key, item]) => [encodeText(key), encodeCbor(item)] as const)
    .sort(([a], [b]) => compareBytes(a, b));
  return concat([head(5, entries.length), ...entries.flat()]);
}

function encodeText(text: string): Uint8Array {
  const bytes = utf8(text);
  return concat([head(3, bytes.length), bytes]);
}

function encodeNumber(value: number): Uint8Array {
  if (Number.isSafeInteger(value)) {
    return Uint8Array.from(value < 0 ? head(1, -1 - value) : head(0, value));
  }
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
