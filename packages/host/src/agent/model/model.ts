import type { ModelMessage, ModelTool, ModelToolCall, ModelUsage } from '@sibyl/plugin-kit';
import type { JsonObject } from '@sibyl/protocol';

export type {
  ModelMessage,
  ModelRole,
  ModelTool,
  ModelToolCall,
  ModelToolResult,
  ModelUsage,
  ModelUse,
  UserPart,
} from '@sibyl/plugin-kit';

/** What a model is asked: one call, with everything it may see. */
export interface ModelCall {
  readonly system: string;
  readonly messages: readonly ModelMessage[];
  readonly tools: readonly ModelTool[];
  readonly signal: AbortSignal;
  /** Told of signs of life that are no parts, such as hidden thinking, so that nobody gives up too early. */
  readonly onActivity?: (() => void) | undefined;
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
