import { ScalarType } from '@bufbuild/protobuf';
import { type BinaryWriter, WireType } from '@bufbuild/protobuf/wire';
import type { WireValue } from './message-draft.js';
import { type Base64Reading, parseBase64 } from './text/bytes.js';
import {
  INT32,
  INT64,
  type IntegerRange,
  parseBool,
  parseFloatText,
  parseInteger,
  UINT32,
  UINT64,
} from './text/numbers.js';

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
      return floatValue(type, parseFloatText(text));
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
    write: (writer) => writer.string(value),
  };
}

export function floatValue(type: ScalarType, value: number): WireValue {
  const isZero = Object.is(value, 0);
  if (type === ScalarType.DOUBLE)
    return { isZero, wireType: Bit64, write: (writer) => writer.double(value) };
  return { isZero, wireType: Bit32, write: (writer) => writer.float(value) };
}
