import type { JsonObject } from '@sibyl/protocol';
import {
  listUserParts,
  type ModelCall,
  type ModelMessage,
  type ModelTool,
  type ModelToolCall,
  type ModelToolResult,
  toObjectSchema,
  type UserPart,
} from '../model.js';
import type { ModelFacts } from '../model-facts.js';

export interface ChatRequestOptions {
  /** The model's id on this host; `name` is its id on the server. */
  readonly id: string;
  readonly name: string;
  /** Whether to ask for token counts; some servers reject that option. */
  readonly includesUsage: boolean;
  readonly facts: ModelFacts;
}

/** Builds the JSON body of a streaming chat completion. */
export function buildChatRequest(
  call: ModelCall,
  { id, name, includesUsage, facts }: ChatRequestOptions,
): string {
  const messages = call.messages.flatMap((message) => toChatMessages(message, id));
  const body = JSON.stringify({
    model: name,
    messages: call.system ? [{ role: 'system', content: call.system }, ...messages] : messages,
    stream: true,
    stream_options: includesUsage ? { include_usage: true } : undefined,
    ...toSettings(call, facts),
  });
  if (call.tools.length === 0) return body;
  return `${body.slice(0, -1)},"tools":[${call.tools.map(writeTool).join(',')}]}`;
}

/** What the settings of the model and the message ask for. */
function toSettings(
  { reasoning, responseSchema, toolChoice }: ModelCall,
  facts: ModelFacts,
): object {
  const { sampling = {}, outputTokens } = facts.settings;
  const effort = facts.chooseEffort(reasoning);
  const isForced = responseSchema && facts.structuredOutput !== false;
  return {
    max_tokens: outputTokens,
    temperature: sampling.temperature,
    top_p: sampling.topP,
    top_k: sampling.topK,
    presence_penalty: sampling.presencePenalty,
    frequency_penalty: sampling.frequencyPenalty,
    seed: sampling.seed,
    tool_choice: toolChoice && toChatChoice(toolChoice),
    reasoning_effort: effort === 'default' ? undefined : effort,
    response_format: isForced
      ? { type: 'json_schema', json_schema: { name: 'answer', schema: responseSchema } }
      : undefined,
  };
}

function toChatChoice(choice: NonNullable<ModelCall['toolChoice']>): string | object {
  return choice === 'required' ? choice : { type: 'function', function: { name: choice.tool } };
}

function toChatMessages(message: ModelMessage, id: string): object[] {
  switch (message.role) {
    case 'user':
      return [{ role: 'user', content: userContent(listUserParts(message)) }];
    case 'assistant':
      return [
        {
          role: 'assistant',
          content: message.text || null,
          tool_calls: message.toolCalls?.length ? message.toolCalls.map(toChatToolCall) : undefined,
          ...replayReasoning(message.providerData, id),
        },
      ];
    case 'tool':
      return [
        ...message.results.map((result) => ({
          role: 'tool',
          tool_call_id: result.id,
          content: result.output,
        })),
        ...toMediaMessage(message.results),
      ];
    default:
      return message satisfies never;
  }
}

/** Results are text in this format, so their files follow in a message of the user. */
function toMediaMessage(results: readonly ModelToolResult[]): object[] {
  const files = results.flatMap(({ media = [] }) => media);
  if (files.length === 0) return [];
  const note = { type: 'text', text: '[The files of the tool results above, not a request]' };
  const parts = files.map((file) => toChatPart({ type: 'file', ...file }));
  return [{ role: 'user', content: [note, ...parts] }];
}

/** Some servers accept parts only if they support images, so text is sent as a string. */
function userContent(parts: readonly UserPart[]): string | object[] {
  const texts = parts.flatMap((part) => (part.type === 'text' ? [part.text] : []));
  return texts.length === parts.length ? texts.join('\n\n') : parts.map(toChatPart);
}

function toChatPart(part: UserPart): object {
  if (part.type === 'text') return part;
  if (part.mediaType.startsWith('text/'))
    return { type: 'text', text: new TextDecoder().decode(part.data) };
  const url = `data:${part.mediaType};base64,${Buffer.from(part.data).toString('base64')}`;
  if (part.mediaType.startsWith('image/')) return { type: 'image_url', image_url: { url } };
  return { type: 'file', file: { filename: 'file', file_data: url } };
}

function toChatToolCall({ id, name, input }: ModelToolCall): object {
  return { id, type: 'function', function: { name, arguments: input } };
}

// Tools are most of a request, and plugins reuse their schemas in every turn.
const knownTools = new WeakMap<
  object,
  Pick<ModelTool, 'name' | 'description'> & { json: string }
>();

function writeTool({ name, description, inputSchema }: ModelTool): string {
  const known = knownTools.get(inputSchema);
  if (known?.name === name && known.description === description) return known.json;
  const parameters = toObjectSchema(inputSchema);
  const json = JSON.stringify({ type: 'function', function: { name, description, parameters } });
  knownTools.set(inputSchema, { name, description, json });
  return json;
}

type Field = 'reasoning_content' | 'reasoning';
type Detail = Record<string, unknown>;

/** Records a step's reasoning as its server needs it back with the tool results. */
export class ReasoningRecord {
  private field: Field | undefined;
  private text = '';
  private readonly details: Detail[] = [];

  /** Reads a delta and returns its text. */
  read(delta: Detail): string {
    if (Array.isArray(delta.reasoning_details)) delta.reasoning_details.forEach(this.merge);
    const field = findReasoningField(delta);
    const text = field ? (delta[field] as string) : '';
    if (text) this.field ??= field;
    this.text += text;
    return text;
  }

  dataFor(model: string): JsonObject | undefined {
    if (!this.field && this.details.length === 0) return undefined;
    return {
      model,
      message: {
        ...(this.field && { [this.field]: this.text }),
        ...(this.details.length > 0 && { reasoning_details: this.details }),
      },
    };
  }

  /** A block arrives in pieces, but the server accepts it back only as a whole. */
  private merge = (detail: Detail): void => {
    const last = this.details.at(-1);
    const continuesLast = last && last.type === detail.type && last.index === detail.index;
    if (!continuesLast) {
      this.details.push({ ...detail });
      return;
    }
    for (const [key, value] of Object.entries(detail)) {
      const isPiece = key === 'text' || key === 'summary' || key === 'data';
      if (isPiece && typeof value === 'string') last[key] = `${last[key] ?? ''}${value}`;
      else if (value !== null && value !== undefined) last[key] = value;
    }
  };
}

function findReasoningField(delta: Detail): Field | undefined {
  if (typeof delta.reasoning_content === 'string') return 'reasoning_content';
  return typeof delta.reasoning === 'string' ? 'reasoning' : undefined;
}

/** Returns the fields to send back with an assistant message; none if another model made it. */
function replayReasoning(data: JsonObject | undefined, model: string): object {
  return data?.model === model ? Object(data.message) : {};
}
