/** Splits a text or bytes at the given positions. */
export function splitAt<T extends { length: number; slice(from: number, to: number): T }>(
  whole: T,
  positions: readonly number[],
): T[] {
  const ends = [...positions.map((position) => position % (whole.length + 1)), whole.length].sort(
    (a, b) => a - b,
  );
  return ends.map((end, i) => whole.slice(ends[i - 1] ?? 0, end));
}
