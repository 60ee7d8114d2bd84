import { type DescEnum, type DescField, ScalarType } from '@bufbuild/protobuf';
import { type FieldForm, isBigNumber, isNullable } from '../schema/options.js';
import { type JsonSink, jsonBytes, spanWriter, type ValueWriter } from './json-sink.js';
import {
  writeDecimalText,
  writeDouble,
  writeFloat,
  writeInt64,
  writeInteger,
  writeIntegerText,
  writeUint64,
} from './numbers.js';
import { writeBase64, writeHex, writeRawJson, writeText } from './text.js';
import { DURATION, GO_DURATION, GO_TIME, STD_DURATION, STD_TIME, TIMESTAMP } from './times.js';
import { WIRE_TYPE, type WireReader } from './wire-reader.js';

/** One of the two ways in which a node turns a message into JSON. */
export interface Dialect {
  readonly timestamp: ValueWriter;
  readonly duration: ValueWriter;
  scalar(type: ScalarType): ValueWriter;
  enum(type: DescEnum): ValueWriter;
  /** The writer of a value with a meaning beyond its type. */
  form(form: FieldForm): ValueWriter | undefined;
  emptyList(field: DescField): '[]' | 'null' | '';
  omitsZero(field: DescField): boolean;
}

const COMMON_FORMS: readonly (readonly [FieldForm, ValueWriter])[] = [
  ['integer', spanWriter(writeIntegerText, '"0"')],
  ['decimal', spanWriter(writeDecimalText, 'null')],
  ['hex', spanWriter(writeHex, '""')],
  ['raw_json', spanWriter(writeRawJson, 'null')],
];

const PROTO_FORMS = new Map<FieldForm, ValueWriter>([
  ...COMMON_FORMS,
  ['std_time', STD_TIME],
  ['std_duration', STD_DURATION],
]);

const GO_FORMS = new Map<FieldForm, ValueWriter>([
  ...COMMON_FORMS,
  ['std_time', GO_TIME],
  ['std_duration', GO_DURATION],
]);

/** Protobuf's JSON as the node's gateway prints it: zero values included. */
export const PROTO_DIALECT: Dialect = {
  timestamp: TIMESTAMP,
  duration: DURATION,
  scalar: (type) => getScalarWriter(PROTO_SCALARS, type),
  enum: enumWriter,
  form: (form) => PROTO_FORMS.get(form),
  emptyList: () => '[]',
  omitsZero: () => false,
};

/** Go's `encoding/json` of the generated structs: nullable fields are omitted when zero. */
export const GO_DIALECT: Dialect = {
  timestamp: GO_TIME,
  duration: GO_DURATION,
  scalar: (type) => getScalarWriter(GO_SCALARS, type),
  enum: () => ENUM_NUMBER,
  form: (form) => GO_FORMS.get(form),
  emptyList: (field) => (isNullable(field) || isNative(field) ? '' : 'null'),
  omitsZero: isNullable,
};

/** Whether the Go type of the items is built into the language. */
function isNative(field: DescField): boolean {
  return !field.message && !isBigNumber(field);
}

function getScalarWriter(writers: ScalarWriters, type: ScalarType): ValueWriter {
  const writer = writers.get(type);
  if (!writer) throw new TypeError(`Unknown scalar type ${type}`);
  return writer;
}

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

/** As in protobuf's JSON: 64-bit integers in quotes. */
export const PROTO_SCALARS: ScalarWriters = new Map([
  ...COMMON,
  ...LONG.map(
    ([type, layout, print]) => [type, numberWriter(layout, quoted(print), '"0"')] as const,
  ),
]);

/** As in Go's `encoding/json`: all numbers bare. */
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

const ZERO = jsonBytes('0');

/** Enums whose Go type prints its own names, and a default for all other numbers. */
const OWN_NAMES: ReadonlyMap<string, EnumNames> = new Map([
  [
    'cosmwasm.wasm.v1.AccessType',
    {
      names: [
        [1, '"Nobody"'],
        [3, '"Everybody"'],
        [4, '"AnyOfAddresses"'],
      ],
      rest: '"Unspecified"',
    },
  ],
  ['google.protobuf.NullValue', { names: [], rest: 'null' }],
]);

interface EnumNames {
  readonly names: readonly (readonly [number: number, json: string])[];
  readonly rest?: string;
}

/** Prints the name of an enum's value, or the bare number if it has none. */
export function enumWriter(type: DescEnum): ValueWriter {
  const { names, rest: restName } = OWN_NAMES.get(type.typeName) ?? declaredNames(type);
  const texts: Uint8Array[] = [];
  for (const [number, json] of names) texts[number] ??= jsonBytes(json);
  const rest = restName === undefined ? undefined : jsonBytes(restName);
  const zero = texts[0] ?? rest ?? ZERO;
  return {
    wireType: WIRE_TYPE.varint,
    write(wire, out) {
      wire.varint();
      const text = texts[wire.low] ?? rest;
      if (text) out.raw(text);
      else writeInteger(out, wire.low);
    },
    zero: () => zero,
  };
}

/** The JSON of all values that have a name. */
export function enumJson(type: DescEnum): unknown[] {
  const { names, rest } = OWN_NAMES.get(type.typeName) ?? declaredNames(type);
  return [...names.map(([, json]) => json), ...(rest ? [rest] : [])].map((json) =>
    JSON.parse(json),
  );
}

function declaredNames(type: DescEnum): EnumNames {
  return { names: type.values.map(({ number, name }) => [number, `"${name}"`]) };
}

/** Prints an enum's number, as Go's own JSON does. */
export const ENUM_NUMBER: ValueWriter = {
  wireType: WIRE_TYPE.varint,
  write(wire, out) {
    wire.varint();
    writeInteger(out, wire.low);
  },
  zero: () => ZERO,
};
