import { type DescEnum, type DescField, type DescMessage, ScalarType } from '@bufbuild/protobuf';
import { enumJson } from '../json/dialects.js';
import { isGoPrinted } from '../json/json-writers.js';
import {
  type FieldForm,
  getFieldForm,
  getMessageForm,
  isNullable,
  isPointer,
} from '../schema/options.js';

const ANY: JsonSchema = {
  type: 'object',
  required: ['@type'],
  properties: { '@type': { type: 'string' } },
  additionalProperties: true,
};

/** JSON schemas of messages, as the replies print them. */
export class JsonSchemas {
  private readonly byName = new Map<string, JsonSchema>();

  /** The schemas of all requested messages and the messages in them. */
  definitions(): Record<string, JsonSchema> {
    return Object.fromEntries([...this.byName].sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  message(type: DescMessage, use: SchemaUse): JsonSchema {
    const form = getMessageForm(type);
    switch (form) {
      case 'any':
        return ANY;
      case 'timestamp':
        return TIMESTAMP;
      case 'duration':
        return DURATION;
      case 'only_member':
        return this.onlyMember(type, use);
      case 'fields':
        return this.reference(type, use === 'reply' && isGoPrinted(type) ? 'go' : use);
      default:
        return form satisfies never;
    }
  }

  /** One value of a field: an item, if it is a list. */
  value(field: DescField, use: SchemaUse): JsonSchema {
    return field.message ? this.message(field.message, use) : leafSchema(field, use);
  }

  private reference(type: DescMessage, use: SchemaUse): JsonSchema {
    const name = use === 'reply' ? type.typeName : `${type.typeName}.${use}`;
    if (!this.byName.has(name)) {
      // Registered before its fields: a message may contain itself.
      this.byName.set(name, {});
      this.byName.set(name, this.object(type, use));
    }
    return { $ref: `#/components/schemas/${name}` };
  }

  private object(type: DescMessage, use: SchemaUse): JsonSchema {
    const required = type.fields.filter((field) => isAlwaysThere(field, use));
    return {
      type: 'object',
      properties: Object.fromEntries(
        type.fields.map((field) => [field.name, this.field(field, use)]),
      ),
      ...(required.length > 0 && { required: required.map(({ name }) => name) }),
      ...(type.deprecated && { deprecated: true }),
    };
  }

  private field(field: DescField, use: SchemaUse): JsonSchema {
    const value = this.value(field, use);
    if (field.fieldKind === 'list')
      return { type: use === 'go' ? ['array', 'null'] : 'array', items: value };
    if (field.fieldKind === 'map') {
      const hasNull = field.mapKind === 'message' && isNullable(field);
      return { type: 'object', additionalProperties: hasNull ? orNull(value) : value };
    }
    return isPointer(field) && !field.oneof && use === 'reply' ? orNull(value) : value;
  }

  /** A wrapper is what it wraps; a dynamic value can be anything. */
  private onlyMember(type: DescMessage, use: SchemaUse): JsonSchema {
    const [field] = type.fields;
    if (!field || type.fields.length > 1) return {};
    if (field.fieldKind === 'map') return { type: 'object', additionalProperties: true };
    if (field.fieldKind === 'list') return { type: 'array', items: {} };
    return this.value(field, use);
  }
}

function orNull(schema: JsonSchema): JsonSchema {
  return { anyOf: [schema, { type: 'null' }] };
}

function isAlwaysThere(field: DescField, use: SchemaUse): boolean {
  if (field.oneof || use === 'input') return false;
  return use === 'reply' || !isNullable(field);
}

/** What a schema describes: a reply, a part of one that Go's `encoding/json` prints, or a request. */
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
/** Accepted base64: both alphabets, with or without padding. */
const BASE64_INPUT: JsonSchema = {
  ...BASE64,
  pattern: '^([A-Za-z0-9+/_-]{4})*([A-Za-z0-9+/_-]{2}(==)?|[A-Za-z0-9+/_-]{3}=?)?$',
};
/** Numbers that fit; a leading zero makes a number octal, as in a node. */
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

/** JSON has no numbers that are not finite. */
function floatSchema(format: string): JsonSchema {
  return { anyOf: [{ type: 'number', format }, { enum: ['NaN', 'Infinity', '-Infinity'] }] };
}

/** The schema of a value that is not a message. */
export function leafSchema(field: DescField, use: SchemaUse): JsonSchema {
  if (field.enum) return enumSchema(field.enum, use);
  const special = FORMS.get(getFieldForm(field));
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
