import { JsonObject } from '@sibyl/protocol';
import { z } from 'zod';
import { CallIds } from '../../agent/calls/call-ids.js';
import { toWellFormed } from '../../agent/conversation/well-formed.js';
import type { ModelCall, ModelMessage, ModelTool } from '../../agent/model/model.js';

const UserPart = z.discriminatedUnion('type', [
  z.object({ type: z.literal('text'), text: z.string() }),
  z.object({ type: z.literal('file'), mediaType: z.string(), data: z.instanceof(Uint8Array) }),
]);
const ToolCall = z.object({ id: z.string(), name: z.string(), input: z.string() });
const ToolResult = z.object({
  id: z.string(),
  name: z.string(),
  output: z.string(),
  isError: z.boolean(),
});
const Message = z.discriminatedUnion('role', [
  z.object({ role: z.literal('user'), content: z.union([z.string(), z.array(UserPart)]) }),
  z.object({
    role: z.literal('assistant'),
    text: z.string(),
    reasoning: z.string().optional(),
    toolCalls: z.array(ToolCall).optional(),
    providerData: JsonObject.optional(),
  }),
  z.object({ role: z.literal('tool'), results: z.array(ToolResult) }),
]);
const Tool = z.object({ name: z.string(), description: z.string(), inputSchema: JsonObject });

const Patch = z.object({
  system: z.string().optional(),
  messages: z.array(z.custom<ModelMessage>((value) => Message.safeParse(value).success)).optional(),
  tools: z.array(z.custom<ModelTool>((value) => Tool.safeParse(value).success)).optional(),
});

/** The call with what a middleware changes of it, or what is wrong with the change. */
export function applyPatch(
  call: ModelCall,
  patch: unknown,
): { readonly ok: ModelCall } | { readonly fault: string } {
  const { data, error } = Patch.safeParse(patch);
  if (error) return { fault: `its change of a model call is unusable: ${z.prettifyError(error)}` };
  const { system = call.system, messages, tools = call.tools } = data;
  const wellFormed = messages ? toWellFormed(messages, new CallIds()) : call.messages;
  if (wellFormed.length === 0) return { fault: 'its change of a model call leaves no message' };
  return { ok: { ...call, system, messages: wellFormed, tools } };
}
