/** Compares texts by their meaning, with the embedding model of the host. */
export interface Embeddings {
  /** Its id: vectors of different models cannot be compared. */
  readonly model: string;
  /** One vector for each text, undefined for a text that the model refuses; throws if the model does not answer. */
  embed(texts: readonly string[]): Promise<readonly (Vector | undefined)[]>;
}

/** The meaning of a text: a direction, with one signed byte for each of its dimensions. */
export type Vector = Uint8Array;

const MAX = 127;

/** Rounds the direction of a vector to bytes, an eighth of their size, which changes the order of results little. */
export function toVector(values: readonly number[]): Vector {
  const length = Math.hypot(...values) || 1;
  const rounded = Int8Array.from(values, (value) => Math.round((value / length) * MAX));
  return new Uint8Array(rounded.buffer);
}

/** From -1 to 1; the closer to 1, the more alike are the meanings. Vectors of different lengths have nothing in common. */
export function compareVectors(a: Vector, b: Vector): number {
  if (a.length !== b.length) return 0;
  const left = toSigned(a);
  const right = toSigned(b);
  let sum = 0;
  for (let i = 0; i < left.length; i++) sum += (left[i] ?? 0) * (right[i] ?? 0);
  return sum / (MAX * MAX);
}

const toSigned = ({ buffer, byteOffset, length }: Vector) =>
  new Int8Array(buffer, byteOffset, length);

/** The first places of a ranking count more than the last, but do not decide alone. */
const RANK_OFFSET = 60;

/** Merges rankings of different kinds, whose scores cannot be compared: what is high in several comes first. */
export function mergeRankings<T>(
  rankings: readonly (readonly T[])[],
  getKey: (item: T) => string,
): T[] {
  const merged = new Map<string, { item: T; score: number }>();
  for (const ranking of rankings)
    for (const [rank, item] of ranking.entries()) {
      const key = getKey(item);
      const { score = 0 } = merged.get(key) ?? {};
      merged.set(key, { item, score: score + 1 / (RANK_OFFSET + rank) });
    }
  return [...merged.values()].sort((a, b) => b.score - a.score).map(({ item }) => item);
}
