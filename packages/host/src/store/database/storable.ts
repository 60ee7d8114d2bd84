const NUL = '\u0000';

/**
 * Replaces NUL characters by U+FFFD: PostgreSQL refuses them in text, and a request holding one
 * must find nothing or be kept, on both engines alike, rather than fail.
 */
export function storable(value: unknown): unknown {
  if (typeof value !== 'string' || !value.includes(NUL)) return value;
  return value.replaceAll(NUL, '\uFFFD');
}
