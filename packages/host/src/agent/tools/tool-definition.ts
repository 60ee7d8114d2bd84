import type { JsonObject } from '@sibyl/protocol';
import type { z } from 'zod';
import type { AgentTool } from '../agent.js';

/** A tool as whoever brings it describes it: a plugin, the browser, an MCP server. */
export interface ToolDefinition {
  /** Letters, digits, `_` and `-`, at most 64: what every provider accepts. */
  readonly name: string;
  readonly description: string;
  /** A zod schema or JSON Schema, of an object; an empty one means any object. */
  readonly inputSchema: z.ZodType | JsonObject;
  /** How long one call may take; a minute unless told. */
  readonly timeoutMs?: number | undefined;
  readonly event?: AgentTool['event'];
  readonly run: AgentTool['run'];
}
