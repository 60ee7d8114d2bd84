import type { JsonObject, Result, ToolCall } from '@sibyl/protocol';
import { LruMap, textBytes } from '@sibyl/server-kit';
import type { Model, ModelCall, ModelMessage, ModelUse } from '../models/model.js';
import type {
  ApprovalRequest,
  InterruptAnswer,
  InterruptRequest,
  PausedError,
  StepJournal,
} from './steps.js';

/** A tool bound to one turn and its caller. */
export interface AgentTool {
  readonly name: string;
  readonly description: string;
  /** JSON Schema of an object, as the model receives it. */
  readonly inputSchema: JsonObject;
  readonly timeoutMs: number;
  /** The event of its calls, if not `tool_call`. */
  readonly event?: 'action_call' | undefined;
  /** Whether it runs an agent; that continues from its own steps in another attempt of the turn. */
  readonly isAgent?: boolean | undefined;
  /** Validates the model's input; errors go back to the model. */
  check(input: unknown): ToolCheck | Promise<ToolCheck>;
  /** Resolves to any JSON value; a rejection is reported to the model and does not end the turn. */
  run(input: JsonObject, call: AgentCall): Promise<unknown>;
}

/** One call of a tool, as the tool sees it. */
export interface AgentCall {
  readonly id: string;
  readonly signal: AbortSignal;
  /** For the request of an agent that the tool runs. */
  readonly nested: Pick<AgentRequest, 'journal' | 'path'>;
  /** The last approval that the call asked for in an earlier attempt, and how it ended. */
  readonly decision: CallDecision | undefined;
  /**
   * Returns the answer to a question, or throws an error if there will be none. Without an answer yet it throws a
   * ToolInterrupt, and the call waits, even if the tool catches that. Once it is answered, the tool runs again from its start.
   */
  interrupt(request: InterruptRequest): unknown;
  /** Makes the call wait for the answers that the agent it runs needs. */
  pause(paused: PausedError): never;
  /** Throws what made the call wait, if it waits. */
  throwIfPaused(): void;
}

/** An approval of a call, and how it ended. */
export interface CallDecision {
  readonly request: ApprovalRequest;
  readonly answer: InterruptAnswer;
}

export type ToolCheck = Result<JsonObject, readonly string[]>;

export interface AgentLimits {
  /** When it is exhausted, one more call without tools asks for the answer. */
  readonly steps: StepBudget;
  /** The most tokens of one model call; beyond it older turns are summarized. */
  readonly contextTokens: number;
}

/** The complete answer of one model call. */
export interface ModelAnswer {
  readonly text: string;
  readonly toolCalls: readonly { readonly id: string; readonly name: string }[];
  readonly use: ModelUse;
}

/** Wraps the model calls of an agent; an error that it throws ends the agent's work. */
export interface ModelHooks {
  /** Called before a model call; every call that it returns is finished or failed. */
  begin(call: ModelCall): Promise<WrappedModelCall>;
}

export interface WrappedModelCall {
  /** The call to make. */
  readonly call: ModelCall;
  finish(answer: ModelAnswer): Promise<void>;
  /** Does nothing once the call is finished. */
  fail(error: unknown): void;
}

/** Everything an agent needs to answer one message. */
export interface AgentRequest {
  readonly model: Model;
  /** Summarizes older turns when the conversation exceeds `contextTokens`. */
  readonly smallModel: Model;
  /** Summaries of earlier turns; without a cache every turn that needs one pays for it again. */
  readonly summaries?: SummaryCache | undefined;
  readonly system: string;
  /** The conversation, oldest first, ending with the message to answer. */
  readonly messages: readonly ModelMessage[];
  /** Called before every model call, because the tools may change in between. */
  readonly tools: () => readonly AgentTool[];
  readonly limits: AgentLimits;
  /** Names of tools that the model does not learn about: only calls of earlier attempts use them. */
  readonly hiddenTools?: ReadonlySet<string> | undefined;
  /** What the model has to call in every step, as for a model call; ignored in steps without the tool. */
  readonly toolChoice?: ModelCall['toolChoice'];
  /** How much to reason, and the schema of the answer, as for a model call. */
  readonly reasoning?: ModelCall['reasoning'];
  readonly responseSchema?: ModelCall['responseSchema'];
  readonly meter: Meter;
  readonly hooks?: ModelHooks | undefined;
  /** Called with the result of each tool call that ran, and its seconds. */
  readonly onToolEnd?: ((call: ToolCall, seconds: number) => void) | undefined;
  readonly signal: AbortSignal;
  /** Stores what the agent does, so that another attempt can continue; without one, tools cannot interrupt. */
  readonly journal?: StepJournal | undefined;
  /** Identifies the agent in the journal: '' (the default) is the main agent. */
  readonly path?: string | undefined;
}

/** What an agent does until its answer is complete, in order. Errors of the model are thrown as ModelError. */
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

/** Reports to the user that something was left out; the turn continues. */
export function warning(code: string, message: string): Warning {
  return { type: 'warning', code, message };
}

/** Checks and counts what is spent on models: before and after every call. */
export interface Meter {
  /** Throws to prevent the call. */
  check(): Promise<void>;
  add(use: ModelUse): void;
}

/** For calls without accounting. */
export const unmetered: Meter = { check: async () => undefined, add: () => undefined };

/** The model calls with tools of one turn, all its agents together. */
export interface StepBudget {
  readonly limit: number;
  taken: number;
}

const MAX_BYTES = 4 * 1024 * 1024;

/** Summaries by the hash of what they summarize, shared by the turns of all sessions. */
export class SummaryCache extends LruMap<string, string> {
  constructor(maxBytes = MAX_BYTES) {
    super({ maxBytes, measure: (summary, hash) => textBytes(summary) + textBytes(hash) });
  }
}
