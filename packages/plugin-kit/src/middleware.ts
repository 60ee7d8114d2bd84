import type { JsonObject } from '@sibyl/protocol';
import type { Reach, TurnContext } from './context.js';
import type { ModelMessage, ModelTool, ModelUse } from './model.js';
import type { ToolContext } from './tool.js';

/** A model call about to be made. */
export interface ModelRequest {
  /** The agent that makes the call: `main`, or the name of a sub-agent. */
  readonly agent: string;
  readonly model: { readonly id: string; readonly vision: boolean };
  readonly system: string;
  readonly messages: readonly ModelMessage[];
  readonly tools: readonly ModelTool[];
}

interface ModelAnswer {
  readonly text: string;
  readonly toolCalls: readonly { readonly id: string; readonly name: string }[];
  readonly use: ModelUse;
}

/** The answer of a model, complete. A middleware returns the one that it received: only the host creates them. */
export class ModelResponse implements ModelAnswer {
  readonly text: string;
  readonly toolCalls: ModelAnswer['toolCalls'];
  readonly use: ModelUse;
  /** A copy with another text lacks it, so it is not a response. */
  declare protected readonly isOriginal: true;

  constructor({ text, toolCalls, use }: ModelAnswer) {
    this.text = text;
    this.toolCalls = toolCalls;
    this.use = use;
  }
}

/** A tool call about to be made; its input is validated. */
export interface ToolCall {
  readonly agent: string;
  readonly id: string;
  readonly name: string;
  readonly input: JsonObject;
}

/**
 * Wraps the model and tool calls of a turn, those of sub-agents included. An OracleError refuses the
 * call with its text: it ends the turn, or the tool call. Any other error, a timeout or an unusable
 * return value fails the call as well: the tool does not run, and a turn whose model call fails ends.
 */
export interface Middleware<Config = Readonly<Record<string, unknown>>, Services = unknown> {
  readonly name: string;
  /**
   * What happens when this middleware fails. `fail` (the default) fails the call that it wraps; `skip`
   * makes the call without it: use that only for a middleware that protects nothing.
   */
  readonly onFailure?: 'fail' | 'skip';
  /**
   * As for a tool. Turns whose access key permits less leave out a middleware that may be skipped; what it does for a certain tool, it
   * does only if `turn.permits` that tool.
   */
  readonly reach?: Reach;
  /**
   * Calls `next` once, with the request or a changed one (`system`, `messages` and `tools` may differ),
   * and returns what it returns. The answer streams to the user meanwhile, so it cannot be changed.
   */
  wrapModel?(
    request: ModelRequest,
    next: (request: ModelRequest) => Promise<ModelResponse>,
    turn: TurnContext<Config, Services>,
  ): Promise<ModelResponse>;
  /** Calls `next` with the call or one with another input, or not at all; what it returns is the result. */
  wrapTool?(
    call: ToolCall,
    next: (call: ToolCall) => Promise<unknown>,
    turn: ToolContext<Config, Services>,
  ): Promise<unknown>;
}
