import type { JsonObject } from '@sibyl/protocol';
import type { z } from 'zod';

/** What a tool is told of the call it answers, beside what it knows of the turn. */
export interface CallContext {
  /** Fires when the turn is aborted or the call runs out of time. */
  readonly signal: AbortSignal;
  readonly toolCallId: string;
}

/** A tool as whoever brings it describes it: a plugin, the browser, an MCP server. */
export interface ToolDefinition<Context extends CallContext> {
  /** Letters, digits, `_` and `-`, at most 64: what every provider accepts. */
  readonly name: string;
  readonly description: string;
  /** A zod schema or JSON Schema, of an object; an empty one means any object. */
  readonly inputSchema: z.ZodType | JsonObject;
  /** How long one call may take; a minute unless told. */
  readonly timeoutMs?: number | undefined;
  /** Returns anything JSON can hold; what it throws is told to the model. */
  run(input: JsonObject, context: Context): unknown;
}
