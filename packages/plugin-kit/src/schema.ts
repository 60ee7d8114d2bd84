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
  if (isZodSchema(schema)) return convertZodSchema(schema);
  if (hasJsonSchema(schema)) return schema['~standard'].jsonSchema.input({ target: 'draft-07' });
  const { vendor } = schema['~standard'];
  throw new Error(
    `schemas of ${vendor} cannot be converted to JSON Schema, which models need: ${fixes[vendor] ?? OTHER_FIX}`,
  );
}

type ZodSchema = StandardSchemaV1 & z.core.$ZodType;

/** Also one of `zod/mini`, or of another copy of zod 4. */
const isZodSchema = (schema: StandardSchemaV1): schema is ZodSchema => '_zod' in schema;

function convertZodSchema(schema: ZodSchema): JsonObject {
  const impossible: { readonly path: string; readonly type: string }[] = [];
  /** Where a value may have another type, or is converted before it is checked. */
  const convertible: string[] = [];
  const { '~standard': _, ...json } = z.toJSONSchema(schema, {
    io: 'input',
    target: 'draft-07',
    unrepresentable: 'any',
    reused: 'inline',
    override: ({ zodSchema, jsonSchema, path: keys }) => {
      const { def } = zodSchema._zod;
      const path = keys.map((key) => `${key}/`).join('');
      const isCoerced = 'coerce' in def && def.coerce === true;
      if (def.type === 'date' && isCoerced)
        Object.assign(jsonSchema, { type: 'string', format: 'date-time' });
      else if (def.type in replacements && !isCoerced) impossible.push({ path, type: def.type });
      else if (def.type === 'union' || isPreprocessed(def)) convertible.push(path);
    },
  });
  for (const { path, type } of impossible) {
    if (convertible.some((start) => path.startsWith(start))) continue;
    const where = path.replaceAll(/properties\//g, '').slice(0, -1);
    throw new Error(
      `${where ? `${where}: ` : ''}JSON has no value of the type ${type}: use ${replacements[type]}`,
    );
  }
  return json;
}

const isPreprocessed = (def: z.core.$ZodTypes['_zod']['def']): boolean =>
  def.type === 'pipe' && def.in._zod.def.type === 'transform';

/** Types that no JSON has, and what to use. */
const replacements: Readonly<Record<string, string>> = {
  date: 'z.iso.datetime() or z.coerce.date()',
  bigint: 'z.int() or z.coerce.bigint()',
  map: 'z.record()',
  set: 'z.array()',
  symbol: 'z.string()',
};

function hasJsonSchema(
  schema: StandardSchemaV1,
): schema is StandardSchemaV1 & StandardJSONSchemaV1 {
  return 'jsonSchema' in schema['~standard'];
}

const OTHER_FIX =
  'use a version that implements Standard JSON Schema, or write the schema with zod or as JSON Schema';

const fixes: Readonly<Record<string, string>> = {
  valibot: 'wrap it in toStandardJsonSchema() of @valibot/to-json-schema',
  zod: 'import z from zod 4; this schema is one of zod 3',
};
