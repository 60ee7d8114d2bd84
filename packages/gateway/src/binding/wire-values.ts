import { type DescEnum, ScalarType } from '@bufbuild/protobuf';
import { type BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import { quote, ValueError } from './bind-error.js';
import { encodeText } from './go-url.js';
import type { WireValue } from './message-draft.js';
import {
  type Base64Reading,
  INT32,
  INT64,
  type IntegerRange,
  parseBase64,
  parseBool,
  parseFloatText,
  parseInteger,
  type SecondsAndNanos,
  UINT32,
  UINT64,
} from './parse-values.js';

type Write<T> = (writer: BinaryWriter, value: T) => unknown;

interface Integer {
  readonly range: IntegerRange;
  readonly wireType: WireType;
  readonly write: Write<bigint>;
}

const { Varint, Bit32, Bit64, LengthDelimited } = WireType;

const INTEGERS: ReadonlyMap<ScalarType, Integer> = new Map([
  [ScalarType.INT32, integer(INT32, Varint, (writer, value) => writer.int32(Number(value)))],
  [ScalarType.SINT32, integer(INT32, Varint, (writer, value) => writer.sint32(Number(value)))],
  [ScalarType.SFIXED32, integer(INT32, Bit32, (writer, value) => writer.sfixed32(Number(value)))],
  [ScalarType.UINT32, integer(UINT32, Varint, (writer, value) => writer.uint32(Number(value)))],
  [ScalarType.FIXED32, integer(UINT32, Bit32, (writer, value) => writer.fixed32(Number(value)))],
  [ScalarType.INT64, integer(INT64, Varint, (writer, value) => writer.int64(value))],
  [ScalarType.SINT64, integer(INT64, Varint, (writer, value) => writer.sint64(value))],
  [ScalarType.SFIXED64, integer(INT64, Bit64, (writer, value) => writer.sfixed64(value))],
  [ScalarType.UINT64, integer(UINT64, Varint, (writer, value) => writer.uint64(value))],
  [ScalarType.FIXED64, integer(UINT64, Bit64, (writer, value) => writer.fixed64(value))],
]);

function integer(range: IntegerRange, wireType: WireType, write: Write<bigint>): Integer {
  return { range, wireType, write };
}

/** Reads a scalar from text. */
export function scalarFromText(type: ScalarType, text: string, base64: Base64Reading): WireValue {
  const integer = INTEGERS.get(type);
  if (integer) return integerValue(integer, parseInteger(text, integer.range));
  switch (type) {
    case ScalarType.BOOL:
      return boolValue(parseBool(text));
    case ScalarType.BYTES:
      return bytesValue(parseBase64(text, base64));
    case ScalarType.FLOAT:
    case ScalarType.DOUBLE:
      return floatValue(type, parseFloatText(text, type === ScalarType.FLOAT ? 32 : 64));
    default:
      return textValue(text);
  }
}

function integerValue({ wireType, write }: Integer, value: bigint): WireValue {
  return { isZero: value === 0n, wireType, write: (writer) => write(writer, value) };
}

export function boolValue(value: boolean): WireValue {
  return { isZero: !value, wireType: Varint, write: (writer) => writer.bool(value) };
}

export function enumValue(value: number): WireValue {
  return { isZero: value === 0, wireType: Varint, write: (writer) => writer.int32(value) };
}

export function bytesValue(value: Uint8Array): WireValue {
  return {
    isZero: value.length === 0,
    wireType: LengthDelimited,
    write: (writer) => writer.bytes(value),
  };
}

export function textValue(value: string): WireValue {
  return {
    isZero: value === '',
    wireType: LengthDelimited,
    write: (writer) =>
      value.isWellFormed() ? writer.string(value) : writer.bytes(encodeText(value)),
  };
}

export function floatValue(type: ScalarType, value: number): WireValue {
  const isZero = Object.is(value, 0);
  if (type === ScalarType.DOUBLE)
    return { isZero, wireType: Bit64, write: (writer) => writer.double(value) };
  return { isZero, wireType: Bit32, write: (writer) => writer.float(value) };
}

/** The number of an enum's value, given by name or as a number; a node accepts only declared ones. */
export function enumNumber(type: DescEnum, text: string, compat?: 'node'): number {
  const named = type.values.find((value) => value.name === text);
  if (named) return named.number;
  if (/^[+-]?\d{1,10}$/.test(text)) {
    const number = BigInt(text.replace(/^\+/, ''));
    const isKnown = !compat || type.values.some((value) => value.number === Number(number));
    if (isKnown && number >= INT32.min && number <= INT32.max) return Number(number);
  }
  throw new ValueError(`${quote(text)} is not a number or one of ${listNames(type)}`);
}

function listNames(type: DescEnum): string {
  const names = type.values.map((value) => value.name);
  return names.length > 12 ? `${names.slice(0, 12).join(', ')}, …` : names.join(', ');
}

/** A Timestamp or a Duration. */
export function timeValue({ seconds, nanos }: SecondsAndNanos): WireValue {
  return {
    wireType: WireType.LengthDelimited,
    isZero: false,
    write(writer) {
      writer.fork();
      if (seconds !== 0n) writer.tag(1, WireType.Varint).int64(seconds);
      if (nanos !== 0) writer.tag(2, WireType.Varint).int32(nanos);
      writer.join();
    },
  };
}

/** An Any that holds a message. */
export function anyValue(typeUrl: string, message: WireValue): WireValue {
  return {
    wireType: WireType.LengthDelimited,
    isZero: false,
    write(writer) {
      writer.fork().tag(1, WireType.LengthDelimited).string(typeUrl);
      // A message has its length before it, and so do bytes that hold one.
      message.write(writer.tag(2, WireType.LengthDelimited));
      writer.join();
    },
  };
}

/** An entry of a map, which on the wire is a message of key and value. */
export function mapEntryValue(key: WireValue, value: WireValue): WireValue {
  return {
    wireType: WireType.LengthDelimited,
    isZero: false,
    write(writer) {
      key.write(writer.fork().tag(1, key.wireType));
      value.write(writer.tag(2, value.wireType));
      writer.join();
    },
  };
}
