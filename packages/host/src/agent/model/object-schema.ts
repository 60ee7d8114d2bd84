import type { JsonObject } from '@sibyl/protocol';

/** A tool's schema as every provider takes it: always that of an object, with properties. */
export function objectSchema({ $schema, ...schema }: JsonObject): JsonObject {
  return { properties: {}, ...schema, type: 'object' };
}
