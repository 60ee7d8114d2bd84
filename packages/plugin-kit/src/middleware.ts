import type { JsonObject } from '@sibyl/protocol';
import type { TurnContext } from './context.js';
import type { ModelMessage, ModelTool, ModelUse } from './model.js';

/** A model is about to be asked. */
export interface ModelRequest {
  /** Who asks: `main`, or the name of a sub-agent. */
  readonly agent: string;
  readonly model: { readonly id: string; readonly vision: boolean };
  readonly system: string;
  readonly messages: readonly ModelMessage[];
  readonly tools: readonly ModelTool[];
}

/** What a middleware may change of a request. */
export type ModelRequestPatch = Partial<Pick<ModelRequest, 'system' | 'messages' | 'tools'>>;

/** A model has answered. */
export interface ModelResponse {
  readonly agent: string;
  readonly text: string;
  readonly toolCalls: readonly { readonly id: string; readonly name: string }[];
  readonly use: ModelUse;
}

/** A tool is about to run, its input already checked. */
export interface ToolRequest {
  readonly agent: string;
  readonly id: string;
  readonly name: string;
  readonly input: JsonObject;
}

/**
 * Wraps model and tool calls, those of sub-agents too. An OracleError is a refusal and ends the turn,
 * or the tool call, with its text. Any other error, a timeout or an unusable return value fails the
 * call as well: the tool does not run, and the turn of a model call ends.
 */
export interface Middleware {
  readonly name: string;
  /**
   * What happens when this middleware fails. `fail` (the default) fails the call that it wraps; `skip`
   * makes the call without it, so use that only for a middleware that protects nothing.
   */
  readonly onFailure?: 'fail' | 'skip';
  /** Returns what is to change. */
  beforeModel?(
    request: ModelRequest,
    turn: TurnContext,
  ): ModelRequestPatch | undefined | Promise<ModelRequestPatch | undefined>;
  afterModel?(response: ModelResponse, turn: TurnContext): void | Promise<void>;
  /** Runs the call with `next`, with another input, or not at all; what it returns is the result. */
  wrapToolCall?(
    request: ToolRequest,
    next: (input: JsonObject) => Promise<unknown>,
    turn: TurnContext,
  ): Promise<unknown>;
}
