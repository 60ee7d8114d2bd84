import type { JsonObject } from '@sibyl/protocol';
import type { z } from 'zod';
import type { TurnContext } from './context.js';
import type { Visibility } from './manifest.js';
import type { ModelRole } from './model.js';

/** Something the agent can do. */
export interface Tool<Schema extends z.ZodType | JsonObject = z.ZodType | JsonObject> {
  /** A name every provider accepts: letters, digits, `_` and `-`, at most 64. */
  readonly name: string;
  /** Tells the model what it does and when to use it. */
  readonly description: string;
  /** What it takes: a zod schema or JSON Schema, of an object. */
  readonly inputSchema: Schema;
  /** How long one call may take; a minute unless told. */
  readonly timeoutMs?: number;
  /** As the plugin's unless told. */
  readonly visibility?: Visibility;
  /** For what calls an action of the user's page: users are told of an `action_call`, not of a `tool_call`. */
  readonly event?: 'action_call';
  /** Returns anything JSON can hold; what it throws is told to the model. */
  run(input: InputOf<Schema>, turn: TurnContext): unknown;
}

type InputOf<Schema> = Schema extends z.ZodType ? z.output<Schema> : JsonObject;

/** Gives a tool the types of its schema. */
export const defineTool = <Schema extends z.ZodType | JsonObject>(tool: Tool<Schema>): Tool =>
  tool as unknown as Tool;

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
