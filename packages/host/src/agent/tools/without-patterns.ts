import type { JsonObject } from '@sibyl/protocol';
import { isObject, mapSchema } from './map-schema.js';

/**
 * The schema without its regular expressions. They come from strangers, and a bad one could hold
 * the whole process while it looks at a text; whoever owns the tool checks them again.
 */
export function withoutPatterns(schema: JsonObject): JsonObject {
  const { pattern, patternProperties, ...rest } = schema;
  const plain = mapSchema(rest, (inner) => (isObject(inner) ? withoutPatterns(inner) : inner));
  // Names that fitted a pattern must not be refused as unknown.
  return patternProperties === undefined ? plain : { ...plain, additionalProperties: true };
}
