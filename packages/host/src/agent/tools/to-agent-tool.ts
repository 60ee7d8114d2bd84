import type { AgentTool } from '../agent.js';
import { readInputSchema } from './input-schema.js';
import type { CallContext, ToolDefinition } from './tool-definition.js';

const TIMEOUT_MS = 60_000;
const NAME = /^[A-Za-z0-9_-]{1,64}$/;

type Made =
  | { readonly ok: AgentTool; readonly error?: undefined }
  | { readonly ok?: undefined; readonly error: string };

/**
 * Binds a tool to a turn, or says why the agent cannot use it: then the tool is left out, not the
 * turn. `context` is what the tool is told of the turn; each call adds its own id and signal.
 */
export function toAgentTool<Context extends CallContext>(
  definition: ToolDefinition<Context>,
  context: Context,
): Made {
  const { name, description, inputSchema, timeoutMs = TIMEOUT_MS } = definition;
  if (!NAME.test(name)) {
    return { error: 'its name may hold letters, digits, _ and - only, at most 64' };
  }
  const schema = readInputSchema(inputSchema);
  if (schema.error !== undefined) return { error: schema.error };
  const { json, check } = schema.ok;
  const run: AgentTool['run'] = async (input, { id, signal }) =>
    definition.run(input, { ...context, toolCallId: id, signal });
  return { ok: { name, description, inputSchema: json, timeoutMs, check, run } };
}
