import type { JsonObject } from '@sibyl/protocol';

/** What a model is wanted for: the answer itself, a sub-agent's part of it, or titles and summaries. */
export type ModelRole = 'main' | 'subagent' | 'utility';

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

/** Tokens that one model was asked for. */
export interface ModelUse extends ModelUsage {
  /** As `/models` lists it. */
  readonly model: string;
}
