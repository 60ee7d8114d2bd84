import { z } from 'zod';

const MAX_DEPTH = 32;

/** Whether a value nests at most `limit` levels; walks without recursion, and what is there twice once a level. */
function isShallow(value: unknown, limit: number): boolean {
  let level = new Set([value]);
  for (let depth = 0; level.size > 0; depth++) {
    if (depth > limit) return false;
    level = new Set([...level].flatMap(valuesOf));
  }
  return true;
}

const valuesOf = (item: unknown): unknown[] =>
  typeof item === 'object' && item !== null ? Object.values(item) : [];

/** A free-form JSON object, bounded in depth. */
export const JsonObject = z
  .record(z.string().max(256), z.unknown())
  .refine((value) => isShallow(value, MAX_DEPTH), {
    error: `may nest at most ${MAX_DEPTH} levels`,
  });
export type JsonObject = z.infer<typeof JsonObject>;
