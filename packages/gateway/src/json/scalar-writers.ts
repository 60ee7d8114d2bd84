import { ScalarType } from '@bufbuild/protobuf';
import type { JsonSink } from './json-sink.js';
import { jsonBytes, spanWriter, type ValueWriter } from './value-writer.js';
import { writeBase64 } from './values/bytes.js';
import {
  writeDouble,
  writeFloat,
  writeInt64,
  writeInteger,
  writeUint64,
} from './values/numbers.js';
import { writeText } from './values/text.js';
import { WIRE_TYPE, type WireReader } from './wire-reader.js';

const QUOTE = 0x22;
const TRUE = jsonBytes('true');
const FALSE = jsonBytes('false');
const floats = new DataView(new ArrayBuffer(8));

type Layout = 'varint' | 'bit32' | 'bit64';

/** Prints the number whose halves the reader holds. */
type PrintHalves = (out: JsonSink, low: number, high: number) => void;

const zigzagLow = (low: number, high: number) => ((low >>> 1) | (high << 31)) ^ -(low & 1);
const zigzagHigh = (low: number, high: number) => (high >>> 1) ^ -(low & 1);

const printInt32: PrintHalves = (out, low) => writeInteger(out, low);
const printUint32: PrintHalves = (out, low) => writeInteger(out, low >>> 0);
const printSint32: PrintHalves = (out, low) => writeInteger(out, (low >>> 1) ^ -(low & 1));
const printSint64: PrintHalves = (out, low, high) =>
  writeInt64(out, zigzagLow(low, high), zigzagHigh(low, high));
const printBool: PrintHalves = (out, low, high) => out.raw((low | high) === 0 ? FALSE : TRUE);

const printFloat: PrintHalves = (out, low) => {
  floats.setInt32(0, low);
  writeFloat(out, floats.getFloat32(0));
};

const printDouble: PrintHalves = (out, low, high) => {
  floats.setInt32(0, high);
  floats.setInt32(4, low);
  writeDouble(out, floats.getFloat64(0));
};

/** Bare in both dialects of JSON. */
const COMMON = new Map<ScalarType, ValueWriter>([
  [ScalarType.STRING, spanWriter(writeText, '""')],
  [ScalarType.BYTES, spanWriter(writeBase64, 'null')],
  [ScalarType.BOOL, numberWriter('varint', printBool, 'false')],
  [ScalarType.INT32, numberWriter('varint', printInt32, '0')],
  [ScalarType.UINT32, numberWriter('varint', printUint32, '0')],
  [ScalarType.SINT32, numberWriter('varint', printSint32, '0')],
  [ScalarType.FIXED32, numberWriter('bit32', printUint32, '0')],
  [ScalarType.SFIXED32, numberWriter('bit32', printInt32, '0')],
  [ScalarType.FLOAT, numberWriter('bit32', printFloat, '0')],
  [ScalarType.DOUBLE, numberWriter('bit64', printDouble, '0')],
]);

const LONG: readonly (readonly [ScalarType, Layout, PrintHalves])[] = [
  [ScalarType.INT64, 'varint', writeInt64],
  [ScalarType.UINT64, 'varint', writeUint64],
  [ScalarType.SINT64, 'varint', printSint64],
  [ScalarType.FIXED64, 'bit64', writeUint64],
  [ScalarType.SFIXED64, 'bit64', writeInt64],
];

export type ScalarWriters = ReadonlyMap<ScalarType, ValueWriter>;

/** As protobuf's JSON has it: 64-bit integers in quotes, which JavaScript could not hold. */
export const PROTO_SCALARS: ScalarWriters = new Map([
  ...COMMON,
  ...LONG.map(
    ([type, layout, print]) => [type, numberWriter(layout, quoted(print), '"0"')] as const,
  ),
]);

/** As `encoding/json` of Go has it: all numbers bare. */
export const GO_SCALARS: ScalarWriters = new Map([
  ...COMMON,
  ...LONG.map(([type, layout, print]) => [type, numberWriter(layout, print, '0')] as const),
]);

function quoted(print: PrintHalves): PrintHalves {
  return (out, low, high) => {
    out.byte(QUOTE);
    print(out, low, high);
    out.byte(QUOTE);
  };
}

function numberWriter(layout: Layout, print: PrintHalves, zero: string): ValueWriter {
  const zeroBytes = jsonBytes(zero);
  return {
    wireType: WIRE_TYPE[layout],
    write(wire: WireReader, out: JsonSink) {
      wire[layout]();
      print(out, wire.low, wire.high);
    },
    zero: () => zeroBytes,
  };
}
