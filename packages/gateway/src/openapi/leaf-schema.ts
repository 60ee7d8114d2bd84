import { type DescEnum, type DescField, ScalarType } from '@bufbuild/protobuf';
import { type FieldForm, formOf } from '../descriptors/field-form.js';
import { enumJson } from '../json/enum-writer.js';

/** Which JSON a schema is of: a reply, a part of one that Go prints in its own way, or a request. */
export type SchemaUse = 'reply' | 'go' | 'input';

export type JsonSchema = { readonly [key: string]: unknown };

export const TIMESTAMP: JsonSchema = { type: 'string', format: 'date-time' };
export const DURATION: JsonSchema = { type: 'string', pattern: '^-?[0-9]+(\\.[0-9]+)?s$' };

const BASE64: JsonSchema = { type: 'string', contentEncoding: 'base64' };

const INT32: JsonSchema = {
  type: 'integer',
  format: 'int32',
  minimum: -(2 ** 31),
  maximum: 2 ** 31 - 1,
};
const UINT32: JsonSchema = { type: 'integer', format: 'uint32', minimum: 0, maximum: 2 ** 32 - 1 };
/** What is read as base64: either alphabet, with or without padding. */
const BASE64_INPUT: JsonSchema = {
  ...BASE64,
  pattern: '^([A-Za-z0-9+/_-]{4})*([A-Za-z0-9+/_-]{2}(==)?|[A-Za-z0-9+/_-]{3}=?)?$',
};
/** Digits that surely fit; a leading zero makes a number octal, as it does for a node. */
const LONG_INPUT: Readonly<Record<string, string>> = {
  int64: '^[+-]?(0[0-7]{0,20}|[1-9][0-9]{0,17})$',
  uint64: '^(0[0-7]{0,20}|[1-9][0-9]{0,18})$',
};

const SCALARS: ReadonlyMap<ScalarType, JsonSchema> = new Map<ScalarType, JsonSchema>([
  [ScalarType.STRING, { type: 'string' }],
  [ScalarType.BYTES, BASE64],
  [ScalarType.BOOL, { type: 'boolean' }],
  [ScalarType.INT32, INT32],
  [ScalarType.SINT32, INT32],
  [ScalarType.SFIXED32, INT32],
  [ScalarType.UINT32, UINT32],
  [ScalarType.FIXED32, UINT32],
  [ScalarType.FLOAT, floatSchema('float')],
  [ScalarType.DOUBLE, floatSchema('double')],
]);

const SIGNED_LONG = new Set([ScalarType.INT64, ScalarType.SINT64, ScalarType.SFIXED64]);

const FORMS: ReadonlyMap<FieldForm, JsonSchema> = new Map<FieldForm, JsonSchema>([
  ['integer', { type: 'string', pattern: '^-?[0-9]+$' }],
  ['decimal', { type: ['string', 'null'], pattern: '^-?[0-9]+\\.[0-9]{18}$' }],
  ['hex', { type: 'string', pattern: '^([0-9A-F]{2})*$' }],
  ['raw_json', {}],
]);

/** What is not finite has no number in JSON. */
function floatSchema(format: string): JsonSchema {
  return { anyOf: [{ type: 'number', format }, { enum: ['NaN', 'Infinity', '-Infinity'] }] };
}

/** The schema of a value that is no message. */
export function leafSchema(field: DescField, use: SchemaUse): JsonSchema {
  if (field.enum) return enumSchema(field.enum, use);
  const special = FORMS.get(formOf(field));
  if (special) return special;
  if (field.scalar === ScalarType.BYTES && use === 'reply' && field.fieldKind === 'scalar')
    return { ...BASE64, type: ['string', 'null'] };
  if (field.scalar === ScalarType.BYTES && use === 'input') return BASE64_INPUT;
  return SCALARS.get(field.scalar as ScalarType) ?? longSchema(field.scalar as ScalarType, use);
}

function enumSchema(type: DescEnum, use: SchemaUse): JsonSchema {
  if (use === 'go') return { type: 'integer' };
  const values = use === 'reply' ? enumJson(type) : type.values.map(({ name }) => name);
  return values.includes(null) ? { enum: values } : { type: 'string', enum: values };
}

function longSchema(type: ScalarType, use: SchemaUse): JsonSchema {
  const format = SIGNED_LONG.has(type) ? 'int64' : 'uint64';
  if (use === 'go') return { type: 'integer', format };
  return { type: 'string', format, ...(use === 'input' && { pattern: LONG_INPUT[format] }) };
}
