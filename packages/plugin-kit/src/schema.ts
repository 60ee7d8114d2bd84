import type { JsonObject } from '@sibyl/protocol';
import type { StandardJSONSchemaV1, StandardSchemaV1 } from '@standard-schema/spec';
import { z } from 'zod';

/** Any schema that implements Standard Schema (zod, valibot, ArkType, …), or JSON Schema of an object. */
export type ToolSchema = StandardSchemaV1 | JsonObject;

/** The input of a tool after validation. */
export type ToolInput<Schema> = Schema extends StandardSchemaV1
  ? StandardSchemaV1.InferOutput<Schema>
  : JsonObject;

export function isStandardSchema(schema: unknown): schema is StandardSchemaV1 {
  const isHolder = typeof schema === 'object' || typeof schema === 'function';
  return isHolder && schema !== null && '~standard' in schema;
}

/** Converts a Standard Schema to JSON Schema of its input; throws an error that names the fix. */
export function toJsonSchema(schema: StandardSchemaV1): JsonObject {
  if (schema instanceof z.ZodType) {
    const { '~standard': _, ...json } = z.toJSONSchema(schema, {
      io: 'input',
      target: 'draft-07',
      unrepresentable: 'any',
      reused: 'inline',
    });
    return json;
  }
  if (hasJsonSchema(schema)) return schema['~standard'].jsonSchema.input({ target: 'draft-07' });
  const { vendor } = schema['~standard'];
  throw new Error(
    `schemas of ${vendor} cannot be converted to JSON Schema, which models need: ${fixes[vendor] ?? OTHER_FIX}`,
  );
}

function hasJsonSchema(
  schema: StandardSchemaV1,
): schema is StandardSchemaV1 & StandardJSONSchemaV1 {
  return 'jsonSchema' in schema['~standard'];
}

const OTHER_FIX =
  'use a version that implements Standard JSON Schema, or write the schema with zod or as JSON Schema';

const fixes: Readonly<Record<string, string>> = {
  valibot: 'wrap it in toStandardJsonSchema() of @valibot/to-json-schema',
  zod: 'install zod 4 once; this schema comes from another copy or version',
};
