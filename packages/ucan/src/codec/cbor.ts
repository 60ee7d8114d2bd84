import type { Result } from '@sibyl/protocol';
import { compareBytes, concat, utf8 } from './bytes.js';
import { type Ipld, type IpldMap, isCidV1, Link } from './ipld.js';

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

const MAX_DEPTH = 16;
/** A typed array of no bytes takes a hundred in memory, so few bytes could become a lot. */
const MAX_VALUES = 256;

export const TOO_MANY_VALUES = `more than ${MAX_VALUES} values`;

const utf8Decoder = /* @__PURE__ */ new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

class CborError extends Error {}

/** Reads one DAG-CBOR value that fills the bytes, in its canonical form and no other. */
export function decodeCbor(bytes: Uint8Array): Result<Ipld, string> {
  try {
    const reader = new CborReader(bytes);
    const value = reader.read(0);
    return reader.isAtEnd ? { ok: value } : { error: 'trailing bytes' };
  } catch (cause) {
    return { error: cause instanceof CborError ? cause.message : 'not UTF-8' };
  }
}

class CborReader {
  private readonly bytes: Uint8Array;
  private readonly view: DataView;
  private offset = 0;
  private values = 0;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get isAtEnd(): boolean {
    return this.offset === this.bytes.length;
  }

  read(depth: number): Ipld {
    if (depth > MAX_DEPTH) throw new CborError('nested too deep');
    this.values += 1;
    if (this.values > MAX_VALUES) throw new CborError(TOO_MANY_VALUES);
    const initial = this.take(1)[0] as number;
    const major = initial >> 5;
    const minor = initial & 31;
    if (major === 7) return this.readSimple(minor);
    const argument = this.readArgument(minor);
    switch (major) {
      case 0:
        return argument;
      case 1:
        return this.negative(argument);
      case 2:
        // A copy: a view would keep all of the token alive.
        return new Uint8Array(this.take(argument));
      case 3:
        return this.readText(argument);
      case 4:
        return this.readArray(argument, depth);
      case 5:
        return this.readMap(argument, depth);
      default:
        return this.readLink(argument, depth);
    }
  }

  private take(length: number): Uint8Array {
    if (length > this.bytes.length - this.offset) throw new CborError('truncated');
    this.offset += length;
    return this.bytes.subarray(this.offset - length, this.offset);
  }

  private readArgument(minor: number): number {
    if (minor < 24) return minor;
    if (minor > 27) throw new CborError('indefinite or reserved length');
    const size = 1 << (minor - 24);
    let value = 0;
    for (const byte of this.take(size)) value = value * 256 + byte;
    const smallest = size === 1 ? 24 : 256 ** (size / 2);
    if (value < smallest) throw new CborError('integer not in its shortest form');
    if (!Number.isSafeInteger(value)) throw new CborError('integer too large');
    return value;
  }

  private negative(argument: number): number {
    const value = -1 - argument;
    if (!Number.isSafeInteger(value)) throw new CborError('integer too large');
    return value;
  }

  private readSimple(minor: number): Ipld {
    if (minor === 20) return false;
    if (minor === 21) return true;
    if (minor === 22) return null;
    if (minor !== 27) throw new CborError('simple value not allowed');
    const at = this.offset;
    this.take(8);
    const value = this.view.getFloat64(at);
    // A whole number has its own encoding; as a float it would be a second one.
    if (!Number.isFinite(value) || Number.isInteger(value))
      throw new CborError('float not allowed');
    return value;
  }

  private readText(length: number): string {
    const text = utf8Decoder.decode(this.take(length));
    // ucanto's decoder swallows a byte order mark and would read another text than we do.
    if (text.startsWith('\uFEFF')) throw new CborError('byte order mark');
    return text;
  }

  private readArray(length: number, depth: number): Ipld[] {
    // Not allocated by the header, which may lie: every item takes a byte, and those run out.
    const items: Ipld[] = [];
    for (let i = 0; i < length; i += 1) items.push(this.read(depth + 1));
    return items;
  }

  private readMap(length: number, depth: number): IpldMap {
    const map: Record<string, Ipld> = {};
    let previous: Uint8Array | undefined;
    for (let i = 0; i < length; i += 1) {
      const start = this.offset;
      const key = this.read(depth + 1);
      // The value that follows counts for both.
      this.values -= 1;
      if (typeof key !== 'string') throw new CborError('map key is not text');
      const keyBytes = this.bytes.subarray(start, this.offset);
      if (previous && compareBytes(previous, keyBytes) >= 0)
        throw new CborError('keys out of order');
      if (key === '__proto__') throw new CborError('key not allowed');
      // DAG-JSON, which is what gets signed, writes links and bytes as maps with this key: with
      // it one signature would fit two different blocks.
      if (key === '/') throw new CborError('key not allowed');
      map[key] = this.read(depth + 1);
      previous = keyBytes;
    }
    return map;
  }

  private readLink(tag: number, depth: number): Link {
    if (tag !== 42) throw new CborError('tag not allowed');
    const value = this.read(depth + 1);
    if (!(value instanceof Uint8Array) || value[0] !== 0) throw new CborError('link malformed');
    const bytes = value.subarray(1);
    if (!isCidV1(bytes)) throw new CborError('link is not a CIDv1');
    return new Link(bytes);
  }
}
