import type { InterruptRequest as PluginRequest } from '@sibyl/plugin-kit';
import type { ApprovalDelegation, JsonObject, ToolCall } from '@sibyl/protocol';
import type { ModelMessage } from '../models/model.js';

export type AssistantMessage = Extract<ModelMessage, { role: 'assistant' }>;

/**
 * One completed piece of an agent's work, stored so that another attempt of the turn can continue from it.
 * JSON-serializable. `path` identifies the agent: '' is the main agent, a sub-agent has the id of the call that runs
 * it, nested ones joined by '/'.
 */
export type AgentStep =
  | {
      /** The intent: stored before any of its tools run. */
      readonly type: 'model';
      readonly path: string;
      readonly message: AssistantMessage;
      /** Why inputs could not be parsed, by call; the message has `{}` for these. */
      readonly invalid?: readonly { readonly callId: string; readonly error: string }[];
    }
  /** Stored after a call ended. */
  | { readonly type: 'result'; readonly path: string; readonly call: ToolCall }
  /** A call stopped because it needs an answer. */
  | {
      readonly type: 'interrupt';
      readonly path: string;
      readonly callId: string;
      readonly request: InterruptRequest;
    }
  /** Stored before an answered call runs again. */
  | { readonly type: 'retry'; readonly path: string; readonly callId: string };

/** Stores the steps of one turn, all its agents together. */
export interface StepJournal {
  /** Steps of earlier attempts of this turn, oldest first; empty in the first attempt. */
  readonly earlier: readonly AgentStep[];
  /** Answers to interrupts of earlier attempts, by the `key` of the PendingInterrupt. */
  readonly answers: ReadonlyMap<string, InterruptAnswer>;
  /** Whether a turn continues after a crash: then results are stored before the model sees them, so that none is lost. */
  readonly isResumable?: boolean;
  /** Remembers a step; it is stored soon, in the order of the calls. */
  add(step: AgentStep): void;
  /** Resolves when every step added until now is stored; rejects if the run was lost or the store fails. */
  commit(): Promise<void>;
}

export type InterruptAnswer =
  | { readonly status: 'answered'; readonly value: unknown }
  | { readonly status: 'expired' }
  | { readonly status: 'cancelled' };

/** A question of a tool; `schema` is the JSON Schema of the answer, without references. */
export interface InterruptRequest extends PluginRequest<JsonObject> {
  /** Set if the question is whether the call may run; only the signature of the user answers it. */
  readonly approval?: ApprovalRequest | undefined;
}

/** A call that needs the approval of the user. */
export interface ApprovalRequest {
  readonly tool: string;
  readonly plugin: string;
  /** The exact arguments. */
  readonly args: JsonObject;
  readonly argsHash: string;
  /** JSON Schema that edited arguments must fit. */
  readonly inputSchema: JsonObject;
  readonly requiredBy: 'tool' | 'operator' | 'rules';
  readonly delegates?: ApprovalDelegation | undefined;
}

/** An open interrupt of a paused agent. */
export interface PendingInterrupt extends InterruptRequest {
  readonly callId: string;
  readonly path: string;
  /** Identifies it within the turn: the path, the call, and `#n` for the n-th interrupt of a call after the first. */
  readonly key: string;
}

/** Calls need answers; all other calls of the step have ended, and every step is stored. */
export class PausedError extends Error {
  override readonly name = 'PausedError';

  constructor(readonly interrupts: readonly PendingInterrupt[]) {
    super('The turn is paused: it waits for an answer.');
  }
}

/** A tool needs an answer before it can run. */
export class ToolInterrupt extends Error {
  override readonly name = 'ToolInterrupt';

  constructor(readonly request: InterruptRequest) {
    super('The tool is paused: it waits for an answer.');
  }
}

/** Whether work stopped because an answer is needed; it did not fail. */
export function isPause(error: unknown): error is ToolInterrupt | PausedError {
  return error instanceof ToolInterrupt || error instanceof PausedError;
}

/** The path of the agent that a call runs. */
export function buildCallPath(path: string, callId: string): string {
  return path === '' ? callId : `${path}/${callId}`;
}

/** The `key` of a call's n-th interrupt, counted from 0. */
export function buildInterruptKey(path: string, callId: string, n: number): string {
  return buildCallPath(path, callId) + (n > 0 ? `#${n}` : '');
}
