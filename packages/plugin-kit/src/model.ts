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
