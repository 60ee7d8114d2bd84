import type { DescField, DescMessage } from '@bufbuild/protobuf';
import { isNullable, isPointer } from '../descriptors/field-form.js';
import { messageForm } from '../descriptors/message-form.js';
import { isGoPrinted } from '../json/go-printed.js';
import { DURATION, type JsonSchema, leafSchema, type SchemaUse, TIMESTAMP } from './leaf-schema.js';

const ANY: JsonSchema = {
  type: 'object',
  required: ['@type'],
  properties: { '@type': { type: 'string' } },
  additionalProperties: true,
};

/** JSON schemas of messages, as the replies print them. */
export class JsonSchemas {
  readonly #definitions = new Map<string, JsonSchema>();

  /** Those of all messages that were asked for, and of all in them. */
  definitions(): Record<string, JsonSchema> {
    return Object.fromEntries([...this.#definitions].sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  message(type: DescMessage, use: SchemaUse): JsonSchema {
    const form = messageForm(type);
    switch (form) {
      case 'any':
        return ANY;
      case 'timestamp':
        return TIMESTAMP;
      case 'duration':
        return DURATION;
      case 'only_member':
        return this.#onlyMember(type, use);
      case 'fields':
        return this.#reference(type, use === 'reply' && isGoPrinted(type) ? 'go' : use);
      default:
        return form satisfies never;
    }
  }

  /** One value of a field: an item, if it is a list. */
  value(field: DescField, use: SchemaUse): JsonSchema {
    return field.message ? this.message(field.message, use) : leafSchema(field, use);
  }

  #reference(type: DescMessage, use: SchemaUse): JsonSchema {
    const name = use === 'reply' ? type.typeName : `${type.typeName}.${use}`;
    if (!this.#definitions.has(name)) {
      // Known before its fields are looked at: a message may hold itself.
      this.#definitions.set(name, {});
      this.#definitions.set(name, this.#object(type, use));
    }
    return { $ref: `#/components/schemas/${name}` };
  }

  #object(type: DescMessage, use: SchemaUse): JsonSchema {
    const required = type.fields.filter((field) => isAlwaysThere(field, use));
    return {
      type: 'object',
      properties: Object.fromEntries(
        type.fields.map((field) => [field.name, this.#field(field, use)]),
      ),
      ...(required.length > 0 && { required: required.map(({ name }) => name) }),
      ...(type.deprecated && { deprecated: true }),
    };
  }

  #field(field: DescField, use: SchemaUse): JsonSchema {
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
  #onlyMember(type: DescMessage, use: SchemaUse): JsonSchema {
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
