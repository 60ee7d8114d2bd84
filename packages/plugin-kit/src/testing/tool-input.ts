import type { JsonObject } from '@sibyl/protocol';
import { z } from 'zod';
import type { Tool } from '../tool.js';

/** The input as the tool gets it, checked as the host does before every call. */
export function checkInput({ name, inputSchema }: Tool, input: unknown): JsonObject {
  const schema = inputSchema instanceof z.ZodType ? inputSchema : z.fromJSONSchema(inputSchema);
  const { data, error } = schema.safeParse(input);
  if (error) throw new Error(`The input of ${name} is refused: ${z.prettifyError(error)}`);
  return data as JsonObject;
}
