import type {
  LanguageModelV4CallOptions,
  LanguageModelV4FunctionTool,
  LanguageModelV4Message,
} from '@ai-sdk/provider';
import type { ModelCall, ModelMessage, ModelTool, ModelToolResult, UserPart } from '../model.js';
import { objectSchema } from '../object-schema.js';
import { type AssistantContent, replayedContent, toolCallPart } from './replay.js';

/** A call of ours as the AI SDK's providers take it. */
export function callOptionsOf(call: ModelCall, model: string): LanguageModelV4CallOptions {
  const system: LanguageModelV4Message[] = call.system
    ? [{ role: 'system', content: call.system }]
    : [];
  const messages = call.messages.flatMap((message) => messageOf(message, model));
  const tools = call.tools.map(toolOf);
  return { prompt: [...system, ...messages], ...(tools.length > 0 && { tools }) };
}

function messageOf(message: ModelMessage, model: string): LanguageModelV4Message[] {
  switch (message.role) {
    case 'user':
      return [{ role: 'user', content: userContent(message.content) }];
    case 'assistant': {
      const calls = message.toolCalls ?? [];
      const content = replayedContent(message.providerData, model, calls) ?? plainContent(message);
      return content.length > 0 ? [{ role: 'assistant', content }] : [];
    }
    case 'tool':
      return [{ role: 'tool', content: message.results.map(resultOf) }];
    default:
      return message satisfies never;
  }
}

function userContent(content: string | readonly UserPart[]) {
  const parts = typeof content === 'string' ? [{ type: 'text' as const, text: content }] : content;
  return parts.map((part) =>
    part.type === 'text' ? part : { ...part, data: { type: 'data' as const, data: part.data } },
  );
}

/** Without the provider's own record, reasoning is left out: none takes it back unsigned. */
function plainContent({
  text,
  toolCalls = [],
}: Extract<ModelMessage, { role: 'assistant' }>): AssistantContent {
  return [...(text ? [{ type: 'text' as const, text }] : []), ...toolCalls.map(toolCallPart)];
}

function resultOf({ id, name, output, isError }: ModelToolResult) {
  return {
    type: 'tool-result' as const,
    toolCallId: id,
    toolName: name,
    output: { type: isError ? ('error-text' as const) : ('text' as const), value: output },
  };
}

function toolOf({ name, description, inputSchema }: ModelTool): LanguageModelV4FunctionTool {
  return { type: 'function', name, description, inputSchema: objectSchema(inputSchema) };
}
