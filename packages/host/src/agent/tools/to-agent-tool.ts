import type { AgentTool } from '../agent.js';
import { readInputSchema } from './input-schema.js';
import type { ToolDefinition } from './tool-definition.js';

const TIMEOUT_MS = 60_000;
const NAME = /^[A-Za-z0-9_-]{1,64}$/;

/** Makes a tool the agent can use, or says why it cannot: then the tool is left out, not the turn. */
export function toAgentTool(
  definition: ToolDefinition,
): { readonly ok: AgentTool; readonly characters: number } | { readonly fault: string } {
  const { name, description, inputSchema, timeoutMs = TIMEOUT_MS, event, run } = definition;
  if (!NAME.test(name)) {
    return { fault: 'its name may hold letters, digits, _ and - only, at most 64' };
  }
  const schema = readInputSchema(inputSchema);
  if ('fault' in schema) return schema;
  const { json, characters, check } = schema.ok;
  const tool = { name, description, inputSchema: json, timeoutMs, event, check, run };
  return { ok: tool, characters };
}
