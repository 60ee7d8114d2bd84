import type { JsonObject } from '@sibyl/protocol';
import type { z } from 'zod';
import type { Visibility } from './manifest.js';
import type { TurnContext } from './turn-context.js';

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
