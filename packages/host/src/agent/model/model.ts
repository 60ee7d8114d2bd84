import type { JsonObject } from '@sibyl/protocol';

/** What a model is asked: one call, with everything it may see. */
export interface ModelCall {
  readonly system: string;
  readonly messages: readonly ModelMessage[];
  readonly tools: readonly ModelTool[];
  readonly signal: AbortSignal;
  /** Told of signs of life that are no parts, such as hidden thinking, so that nobody gives up too early. */
  readonly onActivity?: (() => void) | undefined;
}

/** One step of the conversation as a model sees it, oldest first. */
export type ModelMessage =
  | { readonly role: 'user'; readonly content: string | readonly UserPart[] }
  | {
      readonly role: 'assistant';
      readonly text: string;
      readonly reasoning?: string | undefined;
      readonly toolCalls?: readonly ModelToolCall[] | undefined;
      /** As the `finish` of this step gave it; without it a thinking model loses its thread between tools. */
      readonly providerData?: JsonObject | undefined;
    }
  | { readonly role: 'tool'; readonly results: readonly ModelToolResult[] };

export type UserPart =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'file'; readonly mediaType: string; readonly data: Uint8Array };

/** A tool as a model is told of it; `inputSchema` is JSON Schema of an object. */
export interface ModelTool {
  readonly name: string;
  readonly description: string;
  readonly inputSchema: JsonObject;
}

/** A call the model wants made; `input` is the JSON text it wrote, not yet checked. */
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
}

/** Tokens one call cost; `cached` are those of `input` that the provider had cached. */
export interface ModelUsage {
  readonly input: number;
  readonly output: number;
  readonly cached: number;
}

/** What a model streams back. `finish` is always last, and comes only if the stream ended well. */
export type ModelPart =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'reasoning'; readonly text: string }
  | { readonly type: 'tool-call'; readonly call: ModelToolCall }
  | {
      readonly type: 'finish';
      readonly reason: 'stop' | 'tool-calls' | 'length' | 'content-filter' | 'other';
      readonly usage: ModelUsage;
      /** What the provider wants back with this step in the next call: plain JSON, opaque to all but its adapter. */
      readonly providerData?: JsonObject | undefined;
    };

export type ModelFinish = Extract<ModelPart, { type: 'finish' }>;

/** A language model, wherever it runs. */
export interface Model {
  /** As `/models` lists it and a message may ask for it, such as `openai/gpt-…`. */
  readonly id: string;
  readonly label: string;
  readonly provider: string;
  readonly vision: boolean;
  readonly tools: boolean;
  /** Throws a ModelFault, also in the middle; aborting the call's signal ends it with the signal's reason. */
  stream(call: ModelCall): AsyncIterable<ModelPart>;
}
