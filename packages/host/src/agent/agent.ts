import type { JsonObject, Result, ToolCall } from '@sibyl/protocol';
import { LruMap, textBytes } from '@sibyl/server-kit';
import type { Model, ModelCall, ModelMessage, ModelUse } from '../models/model.js';

/** A tool bound to one turn: it knows its caller already. */
export interface AgentTool {
  readonly name: string;
  readonly description: string;
  /** JSON Schema of an object, as the model is told. */
  readonly inputSchema: JsonObject;
  readonly timeoutMs: number;
  /** How its calls are told, if not as `tool_call`. */
  readonly event?: 'action_call' | undefined;
  /** Checks what the model wrote; the faults go back to the model. */
  check(input: unknown): Result<JsonObject, readonly string[]>;
  /** Resolves to anything JSON can hold; a rejection is told to the model, it ends nothing. */
  run(
    input: JsonObject,
    call: { readonly id: string; readonly signal: AbortSignal },
  ): Promise<unknown>;
}

export interface AgentLimits {
  /** One more call without tools asks for the answer once it is spent. */
  readonly steps: StepBudget;
  /** Tokens the model may be sent; older turns are summed up beyond it. */
  readonly contextTokens: number;
}

/** What a model has answered. */
export interface ModelAnswer {
  readonly text: string;
  readonly toolCalls: readonly { readonly id: string; readonly name: string }[];
  readonly use: ModelUse;
}

/** Stands around the model calls of an agent; what it throws ends the agent's work. */
export interface ModelHooks {
  /** Gives back the call as it is to be made. */
  before(call: ModelCall): Promise<ModelCall>;
  after(answer: ModelAnswer): Promise<void>;
}

/** All an agent needs to answer one message. */
export interface AgentRequest {
  readonly model: Model;
  /** Sums up older turns when the conversation outgrows `contextTokens`. */
  readonly smallModel: Model;
  /** Summaries of earlier turns; without it every turn that needs one pays for it again. */
  readonly summaries?: SummaryCache | undefined;
  readonly system: string;
  /** The conversation so far, oldest first, ending with the message to answer. */
  readonly messages: readonly ModelMessage[];
  /** Asked before every model call: what can be used may change from one to the next. */
  readonly tools: () => readonly AgentTool[];
  readonly limits: AgentLimits;
  readonly meter: Meter;
  readonly hooks?: ModelHooks | undefined;
  readonly signal: AbortSignal;
}

/** What an agent does on the way to its answer, in order. Faults of the model are thrown as ModelFault. */
export type AgentPart =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'reasoning'; readonly text: string }
  | {
      readonly type: 'tool-start';
      readonly id: string;
      readonly name: string;
      readonly args: JsonObject;
      readonly event?: AgentTool['event'];
    }
  | {
      readonly type: 'tool-end';
      readonly call: ToolCall;
      readonly event?: AgentTool['event'];
    }
  | { readonly type: 'warning'; readonly code: string; readonly message: string };

export type Warning = Extract<AgentPart, { type: 'warning' }>;

/** Tells the user that something was left out while the turn goes on (contract B4). */
export function warning(code: string, message: string): Warning {
  return { type: 'warning', code, message };
}

/** Watches what is spent on models: asked before every call, told after it. */
export interface Meter {
  /** Throws to keep the call from being made. */
  check(): Promise<void>;
  add(use: ModelUse): void;
}

/** For calls that nobody accounts for. */
export const unmetered: Meter = { check: async () => undefined, add: () => undefined };

/** Model calls with tools that one turn may make, all its agents together. */
export class StepBudget {
  private taken = 0;

  constructor(readonly limit: number) {}

  get isExhausted(): boolean {
    return this.taken >= this.limit;
  }

  take(): void {
    this.taken += 1;
  }
}

const MAX_BYTES = 4 * 1024 * 1024;

/** Summaries by the hash of what they sum up; shared by the turns of all sessions. */
export class SummaryCache extends LruMap<string, string> {
  constructor(maxBytes = MAX_BYTES) {
    super({ maxBytes, sizeOf: (summary, hash) => textBytes(summary) + textBytes(hash) });
  }
}
