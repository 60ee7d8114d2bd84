import { WireType } from '@bufbuild/protobuf/wire';

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

const WIRE_TYPES: Readonly<Record<string, WireType>> = {
  fixed32: WireType.Bit32,
  sfixed32: WireType.Bit32,
  float: WireType.Bit32,
  fixed64: WireType.Bit64,
  sfixed64: WireType.Bit64,
  double: WireType.Bit64,
};

export function packedWireType(type: string): WireType {
  return WIRE_TYPES[type] ?? WireType.Varint;
}

/** A number, given as the bits it has on the wire. */
export function numberJson(type: string, bits: bigint): string {
  switch (type) {
    case 'bool':
      return String(bits !== 0n);
    case 'int32':
    case 'sfixed32':
      return String(BigInt.asIntN(32, bits));
    case 'uint32':
    case 'fixed32':
      return String(BigInt.asUintN(32, bits));
    case 'sint32':
      return String(unzigzag(BigInt.asUintN(32, bits)));
    case 'int64':
    case 'sfixed64':
      return `"${BigInt.asIntN(64, bits)}"`;
    case 'uint64':
    case 'fixed64':
      return `"${bits}"`;
    case 'sint64':
      return `"${unzigzag(bits)}"`;
    default:
      return type === 'float' ? floatJson(bits) : doubleJson(bits);
  }
}

function unzigzag(bits: bigint): bigint {
  return bits % 2n === 0n ? bits / 2n : -(bits + 1n) / 2n;
}

function doubleJson(bits: bigint): string {
  const value = new Float64Array(BigUint64Array.of(bits).buffer)[0] as number;
  if (!Number.isFinite(value)) return `"${value}"`;
  return Object.is(value, -0) ? '-0' : String(value);
}

function floatJson(bits: bigint): string {
  const value = new Float32Array(Uint32Array.of(Number(bits)).buffer)[0] as number;
  if (!Number.isFinite(value)) return `"${value}"`;
  if (value === 0) return Object.is(value, -0) ? '-0' : '0';
  const precisions = Array.from({ length: 9 }, (_, i) => Number(value.toPrecision(i + 1)));
  return String(precisions.find((short) => Math.fround(short) === value));
}

/** Text as Go escapes it, character by character. */
export function textJson(bytes: Uint8Array): string {
  let json = '';
  for (let at = 0; at < bytes.length; ) {
    const character = characterAt(bytes, at);
    json += character === undefined ? '\\ufffd' : goEscape(character);
    at += character === undefined ? 1 : Buffer.byteLength(character);
  }
  return `"${json}"`;
}

function characterAt(bytes: Uint8Array, at: number): string | undefined {
  const first = bytes[at] as number;
  if (first < 0x80) return String.fromCharCode(first);
  const length = [0xf0, 0xe0, 0xc0].findIndex((least) => first >= least);
  try {
    return utf8.decode(bytes.subarray(at, at + (length < 0 ? 1 : 4 - length)));
  } catch {
    return undefined;
  }
}

function goEscape(character: string): string {
  if ('<>&\u2028\u2029'.includes(character))
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return JSON.stringify(character).slice(1, -1);
}

export function decimalJson(bytes: Uint8Array): string {
  if (bytes.length === 0) return 'null';
  const value = BigInt(Buffer.from(bytes).toString());
  const size = value < 0n ? -value : value;
  const fraction = String(size % 10n ** 18n).padStart(18, '0');
  return `"${value < 0n ? '-' : ''}${size / 10n ** 18n}.${fraction}"`;
}

export function integerJson(bytes: Uint8Array): string {
  return `"${BigInt(Buffer.from(bytes).toString() || '0')}"`;
}

/** Raw JSON is compacted by hand, since reading it would lose how its numbers are written. */
export function rawJson(bytes: Uint8Array): string {
  return Buffer.from(bytes)
    .toString()
    .replace(/("(?:[^"\\]|\\.)*")|\s+/g, (_, string: string | undefined) => string ?? '')
    .replace(/[<>&\u2028\u2029]/g, goEscape);
}
