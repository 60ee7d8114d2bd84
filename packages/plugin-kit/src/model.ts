import type { Attachment, JsonObject } from '@sibyl/protocol';

/** The purpose of a model: the answer, a sub-agent, or titles and summaries. */
export type ModelRole = 'main' | 'subagent' | 'utility';

/** One message of the conversation as a model receives it. */
export type ModelMessage =
  | {
      readonly role: 'user';
      readonly content: string | readonly UserPart[];
      /** What the host adds after the content, such as when the message was sent. */
      readonly note?: string | undefined;
      /** The files that were sent with it; models receive only what a middleware adds to the content. */
      readonly attachments?: readonly Attachment[] | undefined;
    }
  | {
      readonly role: 'assistant';
      readonly text: string;
      readonly reasoning?: string | undefined;
      readonly toolCalls?: readonly ModelToolCall[] | undefined;
      /** The provider's record of this step, which reasoning models need for the next one. */
      readonly providerData?: JsonObject | undefined;
    }
  | { readonly role: 'tool'; readonly results: readonly ModelToolResult[] };

export type UserPart =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'file'; readonly mediaType: string; readonly data: Uint8Array };

/** A tool as a model receives it; `inputSchema` is JSON Schema of an object. */
export interface ModelTool {
  readonly name: string;
  readonly description: string;
  readonly inputSchema: JsonObject;
}

/** A tool call of the model; `input` is JSON text that is not validated yet. */
export interface ModelToolCall {
  readonly id: string;
  readonly name: string;
  readonly input: string;
}

export interface ModelToolResult {
  readonly id: string;
  readonly name: string;
  readonly output: string;
  readonly isError: boolean;
  /** Images and other files of the result, for models that accept them; `output` describes them. */
  readonly media?: readonly MediaPart[] | undefined;
}

export interface MediaPart {
  readonly mediaType: string;
  readonly data: Uint8Array;
}

/** The tokens of one call; `cached` is the cached part of `input`. */
export interface ModelUsage {
  readonly input: number;
  readonly output: number;
  readonly cached: number;
  /** In the currency of the configured prices; missing if there are none. */
  readonly cost?: number | undefined;
}

/** The tokens of one model. */
export interface ModelUse extends ModelUsage {
  /** As `/models` lists it. */
  readonly model: string;
}

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
