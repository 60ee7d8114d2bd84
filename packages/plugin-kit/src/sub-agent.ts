import type { Visibility } from './manifest.js';
import type { ModelRole } from './model-call.js';
import type { Tool } from './tool.js';
import type { TurnContext } from './turn-context.js';

/** An agent that the main agent can hand a task to, as the tool `call_<name>_agent`. */
export interface SubAgent {
  /** Lower case, digits and `_`, at most 40. */
  readonly name: string;
  /** Tells the main agent what it does and when to call it. */
  readonly description: string;
  /** Its system prompt. */
  readonly prompt: string | ((turn: TurnContext) => string | Promise<string>);
  readonly tools?: readonly Tool[];
  /** `subagent` unless told. */
  readonly model?: ModelRole;
  /** As the plugin's unless told. */
  readonly visibility?: Visibility;
}

/** Gives a plain object the sub-agent's type. */
export const defineSubAgent = (agent: SubAgent): SubAgent => agent;
