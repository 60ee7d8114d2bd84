import { z } from 'zod';

const MAX_DEPTH = 32;

/** Whether a JSON value nests at most `limit` levels; walks without recursion. */
function isShallow(value: unknown, limit: number): boolean {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > limit) return false;
    level = level.flatMap((item) =>
      typeof item === 'object' && item !== null ? Object.values(item) : [],
    );
  }
  return true;
}

/** A free-form JSON object, bounded in depth. */
export const JsonObject = z
  .record(z.string().max(256), z.unknown())
  .refine((value) => isShallow(value, MAX_DEPTH), {
    error: `may nest at most ${MAX_DEPTH} levels`,
  });
export type JsonObject = z.infer<typeof JsonObject>;
