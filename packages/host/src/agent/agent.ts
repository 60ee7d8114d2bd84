import type { FaultKind, JsonObject } from '@sibyl/protocol';
import type { SummaryCache } from './budget/summary-cache.js';
import type { Model, ModelMessage, ModelUsage } from './model/model.js';

/** A tool bound to one turn: it knows its caller already. */
export interface AgentTool {
  readonly name: string;
  readonly description: string;
  /** JSON Schema of an object, as the model is told. */
  readonly inputSchema: JsonObject;
  readonly timeoutMs: number;
  /** Checks what the model wrote; the faults go back to the model. */
  check(input: unknown): { readonly ok: JsonObject } | { readonly faults: readonly string[] };
  /** Resolves to anything JSON can hold; a rejection is told to the model, it ends nothing. */
  run(
    input: JsonObject,
    call: { readonly id: string; readonly signal: AbortSignal },
  ): Promise<unknown>;
}

export interface AgentLimits {
  /** Model calls with tools one turn may make; one more without tools then asks for the answer. */
  readonly steps: number;
  /** Tokens the model may be sent; older turns are summed up beyond it. */
  readonly contextTokens: number;
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
  readonly tools: readonly AgentTool[];
  readonly limits: AgentLimits;
  readonly signal: AbortSignal;
}

/** A tool call that has returned; `output` is the JSON text of the result. */
export interface FinishedCall {
  readonly id: string;
  readonly name: string;
  readonly args: JsonObject;
  readonly status: 'done' | 'error';
  readonly output: string;
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
    }
  | { readonly type: 'tool-end'; readonly call: FinishedCall }
  | { readonly type: 'warning'; readonly code: string; readonly message: string }
  | { readonly type: 'usage'; readonly model: string; readonly usage: ModelUsage };

/** Why a turn failed, as the `error` frame tells it. */
export interface TurnFault {
  readonly message: string;
  readonly kind: FaultKind;
  readonly retryable: boolean;
}
