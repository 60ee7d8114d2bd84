import { describeIssues, type JsonObject } from '@sibyl/protocol';
import type { ArgumentSchema, StandardSchema } from './page-function.js';

export const isStandardSchema = (schema: ArgumentSchema): schema is StandardSchema =>
  '~standard' in schema;

/** The arguments as the schema reads them; throws what the model should be told. */
export async function checkArguments(schema: ArgumentSchema, args: JsonObject): Promise<unknown> {
  if (!isStandardSchema(schema)) return args;
  const result = await schema['~standard'].validate(args);
  if (!result.issues) return result.value;
  const lines = describeIssues(result.issues, 'arguments');
  throw new Error(`The arguments do not fit: ${lines.join('; ')}`);
}

/** The same at once; nothing when they do not fit, or when the schema takes its time. */
export function readArguments(
  schema: ArgumentSchema,
  args: JsonObject,
): { readonly value: unknown } | undefined {
  if (!isStandardSchema(schema)) return { value: args };
  const result = schema['~standard'].validate(args);
  return 'value' in result ? result : undefined;
}
