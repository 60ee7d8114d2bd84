import type { DescEnum, DescField, ScalarType } from '@bufbuild/protobuf';
import { type FieldForm, isBigNumber, isNullable } from '../descriptors/field-form.js';
import { ENUM_NUMBER, enumWriter } from './enum-writer.js';
import { GO_SCALARS, PROTO_SCALARS, type ScalarWriters } from './scalar-writers.js';
import {
  DURATION,
  GO_DURATION,
  GO_TIME,
  STD_DURATION,
  STD_TIME,
  TIMESTAMP,
} from './time-writers.js';
import { spanWriter, type ValueWriter } from './value-writer.js';
import { writeDecimalText, writeIntegerText } from './values/big-numbers.js';
import { writeHex } from './values/bytes.js';
import { writeRawJson } from './values/raw-json.js';

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

/** Protobuf's JSON as the node's gateway prints it: everything is there, zero or not. */
export const PROTO_DIALECT: Dialect = {
  timestamp: TIMESTAMP,
  duration: DURATION,
  scalar: (type) => scalarOf(PROTO_SCALARS, type),
  enum: enumWriter,
  form: (form) => PROTO_FORMS.get(form),
  emptyList: () => '[]',
  omitsZero: () => false,
};

/** Go's `encoding/json` over the generated structs: what may be null is left out when it is zero. */
export const GO_DIALECT: Dialect = {
  timestamp: GO_TIME,
  duration: GO_DURATION,
  scalar: (type) => scalarOf(GO_SCALARS, type),
  enum: () => ENUM_NUMBER,
  form: (form) => GO_FORMS.get(form),
  emptyList: (field) => (isNullable(field) || isNative(field) ? '' : 'null'),
  omitsZero: isNullable,
};

/** Whether Go holds the items by a type of its language. */
function isNative(field: DescField): boolean {
  return !field.message && !isBigNumber(field);
}

function scalarOf(writers: ScalarWriters, type: ScalarType): ValueWriter {
  const writer = writers.get(type);
  if (!writer) throw new TypeError(`There is no scalar type ${type}`);
  return writer;
}
