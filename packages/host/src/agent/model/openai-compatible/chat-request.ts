import type { ModelCall, ModelMessage, ModelTool, ModelToolCall, UserPart } from '../model.js';
import { objectSchema } from '../object-schema.js';
import { replayedReasoning } from './reasoning-record.js';

export interface ChatRequestOptions {
  /** The model's id here, and what its server calls it. */
  readonly id: string;
  readonly name: string;
  /** Whether to ask for a count of tokens; some servers refuse the question. */
  readonly asksUsage: boolean;
}

/** The JSON body of a streaming chat completion. */
export function chatRequestOf(
  call: ModelCall,
  { id, name, asksUsage }: ChatRequestOptions,
): string {
  const messages = call.messages.flatMap((message) => messagesOf(message, id));
  return JSON.stringify({
    model: name,
    messages: call.system ? [{ role: 'system', content: call.system }, ...messages] : messages,
    tools: call.tools.length > 0 ? call.tools.map(toolOf) : undefined,
    stream: true,
    stream_options: asksUsage ? { include_usage: true } : undefined,
  });
}

function messagesOf(message: ModelMessage, id: string): object[] {
  switch (message.role) {
    case 'user':
      return [{ role: 'user', content: userContent(message.content) }];
    case 'assistant':
      return [
        {
          role: 'assistant',
          content: message.text || null,
          tool_calls: message.toolCalls?.length ? message.toolCalls.map(callOf) : undefined,
          ...replayedReasoning(message.providerData, id),
        },
      ];
    case 'tool':
      return message.results.map((result) => ({
        role: 'tool',
        tool_call_id: result.id,
        content: result.output,
      }));
    default:
      return message satisfies never;
  }
}

function userContent(content: string | readonly UserPart[]): string | object[] {
  return typeof content === 'string' ? content : content.map(partOf);
}

function partOf(part: UserPart): object {
  if (part.type === 'text') return part;
  if (part.mediaType.startsWith('text/'))
    return { type: 'text', text: new TextDecoder().decode(part.data) };
  const url = `data:${part.mediaType};base64,${Buffer.from(part.data).toString('base64')}`;
  if (part.mediaType.startsWith('image/')) return { type: 'image_url', image_url: { url } };
  return { type: 'file', file: { filename: 'file', file_data: url } };
}

function callOf({ id, name, input }: ModelToolCall): object {
  return { id, type: 'function', function: { name, arguments: input } };
}

function toolOf({ name, description, inputSchema }: ModelTool): object {
  const parameters = objectSchema(inputSchema);
  return { type: 'function', function: { name, description, parameters } };
}
