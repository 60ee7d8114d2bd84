import type { JsonObject } from '@sibyl/protocol';

/** A JSON Schema: an object, or a boolean for anything and nothing. */
export type JsonSchema = JsonObject | boolean;

/** Keywords that hold a schema, or a list of them. */
const HOLDS_SCHEMAS = new Set([
  'additionalItems',
  'additionalProperties',
  'allOf',
  'anyOf',
  'contains',
  'else',
  'if',
  'items',
  'not',
  'oneOf',
  'prefixItems',
  'propertyNames',
  'then',
  'unevaluatedItems',
  'unevaluatedProperties',
]);

/** Keywords that hold schemas by name. */
const HOLDS_NAMED_SCHEMAS = new Set(['dependentSchemas', 'patternProperties', 'properties']);

/** The schema with every schema right inside it replaced; values that only look like schemas stay. */
export function mapSchema(
  schema: JsonObject,
  replace: (inner: JsonSchema) => JsonSchema,
): JsonObject {
  const each = (inner: unknown) => replace(asSchema(inner));
  const entries = Object.entries(schema).map(([keyword, value]) => {
    if (HOLDS_NAMED_SCHEMAS.has(keyword)) return [keyword, mapValues(value, each)];
    if (!HOLDS_SCHEMAS.has(keyword)) return [keyword, value];
    return [keyword, Array.isArray(value) ? value.map(each) : each(value)];
  });
  return Object.fromEntries(entries);
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function asSchema(value: unknown): JsonSchema {
  if (typeof value === 'boolean' || isObject(value)) return value;
  throw new Error('a part of it is no schema');
}

function mapValues(named: unknown, replace: (inner: unknown) => JsonSchema): JsonObject {
  if (!isObject(named)) throw new Error('a part of it is no schema');
  return Object.fromEntries(Object.entries(named).map(([name, inner]) => [name, replace(inner)]));
}
