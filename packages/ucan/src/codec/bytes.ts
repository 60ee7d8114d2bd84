const encoder = new TextEncoder();

export const utf8 = (text: string): Uint8Array => encoder.encode(text);

export function concat(parts: readonly ArrayLike<number>[]): Uint8Array {
  const out = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    out.set(part, offset);
    offset += part.length;
  }
  return out;
}

/** Length first, then byte by byte: the order of DAG-CBOR map keys. */
export function compareBytes(a: Uint8Array, b: Uint8Array): number {
  if (a.length !== b.length) return a.length - b.length;
  for (let i = 0; i < a.length; i += 1) {
    const difference = (a[i] as number) - (b[i] as number);
    if (difference !== 0) return difference;
  }
  return 0;
}

export const equalBytes = (a: Uint8Array, b: Uint8Array): boolean => compareBytes(a, b) === 0;

export function startsWith(bytes: Uint8Array, prefix: Uint8Array): boolean {
  return bytes.length >= prefix.length && equalBytes(bytes.subarray(0, prefix.length), prefix);
}

/** Unsigned LEB128 of a non-negative integer. */
export function varint(value: number): number[] {
  const out: number[] = [];
  let rest = value;
  while (rest > 127) {
    out.push((rest & 127) | 128);
    rest = Math.floor(rest / 128);
  }
  out.push(rest);
  return out;
}

export interface Varint {
  readonly value: number;
  readonly next: number;
}

// Four bytes hold 2^28: more than any length or code a token may carry.
const MAX_BYTES = 4;

/** Reads a varint in its shortest form only, since a longer one would give one token two encodings. */
export function readVarint(bytes: Uint8Array, offset: number): Varint | undefined {
  let value = 0;
  for (let i = 0; i < MAX_BYTES; i += 1) {
    const byte = bytes[offset + i];
    if (byte === undefined) return undefined;
    value |= (byte & 127) << (7 * i);
    if (byte < 128) {
      return byte === 0 && i > 0 ? undefined : { value, next: offset + i + 1 };
    }
  }
  return undefined;
}

const BASE32 = 'abcdefghijklmnopqrstuvwxyz234567';

/** RFC 4648 base32 in lower case without padding. */
export function base32(bytes: Uint8Array): string {
  let out = '';
  let bits = 0;
  let buffer = 0;
  for (const byte of bytes) {
    buffer = ((buffer & 31) << 8) | byte;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      out += BASE32[(buffer >> bits) & 31];
    }
  }
  return bits > 0 ? out + BASE32[(buffer << (5 - bits)) & 31] : out;
}

/** Standard padded base64, as tokens are sent. */
export function base64(bytes: Uint8Array): string {
  let binary = '';
  // In chunks, since the number of arguments is limited. Byte by byte, or with a spread, it takes ten times as long.
  for (let i = 0; i < bytes.length; i += 4096) {
    binary += String.fromCharCode.apply(null, bytes.subarray(i, i + 4096) as never);
  }
  return btoa(binary);
}

export const base64url = (bytes: Uint8Array): string =>
  base64(bytes).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');

const ALPHABET = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';
const DIGITS = new Map([...ALPHABET].map((character, digit) => [character, digit]));

/** The conversion is quadratic, so longer text is refused; a key is at most 48 characters. */
const MAX_TEXT = 64;

/** Writes bytes in the Bitcoin alphabet. */
export function encodeBase58(bytes: Uint8Array): string {
  const zeros = leadingZeros(bytes);
  const digits = convert(bytes.subarray(zeros), 256, 58);
  return '1'.repeat(zeros) + digits.map((digit) => ALPHABET[digit]).join('');
}

/** Reads base58btc; undefined for a foreign character or for more than a key could need. */
export function decodeBase58(text: string): Uint8Array | undefined {
  if (text.length > MAX_TEXT) return undefined;
  const digits: number[] = [];
  for (const character of text) {
    const digit = DIGITS.get(character);
    if (digit === undefined) return undefined;
    digits.push(digit);
  }
  const zeros = leadingZeros(digits);
  return Uint8Array.from([...new Array(zeros).fill(0), ...convert(digits.slice(zeros), 58, 256)]);
}

function leadingZeros(digits: ArrayLike<number>): number {
  let count = 0;
  while (count < digits.length && digits[count] === 0) count++;
  return count;
}

/** Changes the base of a big-endian number by repeated multiplication. */
function convert(digits: Iterable<number>, from: number, to: number): number[] {
  const result: number[] = [];
  for (const digit of digits) {
    let carry = digit;
    for (let i = 0; i < result.length; i++) {
      carry += (result[i] ?? 0) * from;
      result[i] = carry % to;
      carry = Math.floor(carry / to);
    }
    for (; carry > 0; carry = Math.floor(carry / to)) result.push(carry % to);
  }
  return result.reverse();
}
