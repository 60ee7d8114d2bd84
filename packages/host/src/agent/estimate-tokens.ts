import {
  listUserParts,
  type MediaPart,
  type ModelCall,
  type ModelMessage,
  type ModelTool,
  type UserPart,
} from '../models/model.js';

type UserMessage = Extract<ModelMessage, { role: 'user' }>;

const BYTES_PER_TOKEN = 4;
const MESSAGE_OVERHEAD = 4;
/** Names, ids and the JSON around them. */
const CALL_OVERHEAD = 20;
const IMAGE_TOKENS = 1500;
const DOCUMENT_BYTES_PER_TOKEN = 20;

/** Estimates the tokens of a text by bytes, because other scripts need more tokens per character. */
export function estimateTokens(text: string): number {
  return Math.ceil(Buffer.byteLength(text) / BYTES_PER_TOKEN);
}

// Messages and schemas never change, and a turn estimates the same ones before every step.
const knownMessages = new WeakMap<ModelMessage, number>();
const knownSchemas = new WeakMap<object, number>();

export function estimateMessages(messages: readonly ModelMessage[]): number {
  return messages.reduce((sum, message) => sum + estimateMessage(message), 0);
}

export function estimateTools(tools: readonly ModelTool[]): number {
  return tools.reduce((sum, tool) => sum + estimateTool(tool), 0);
}

/** Estimates the tokens that a call sends. */
export function estimateCall({ system, messages, tools }: ModelCall): number {
  return estimateTokens(system) + estimateMessages(messages) + estimateTools(tools);
}

/** Whether an estimate of the call includes files, whose tokens depend on the model. */
export const hasFiles = ({ messages }: ModelCall): boolean => messages.some(holdsFile);

const isFile = ({ type }: UserPart) => type === 'file';

function holdsFile(message: ModelMessage): boolean {
  if (message.role === 'user')
    return typeof message.content !== 'string' && message.content.some(isFile);
  return message.role === 'tool' && message.results.some(({ media }) => media?.length);
}

function estimateTool({ name, description, inputSchema }: ModelTool): number {
  let schema = knownSchemas.get(inputSchema);
  if (schema === undefined) {
    schema = estimateTokens(JSON.stringify(inputSchema));
    knownSchemas.set(inputSchema, schema);
  }
  return MESSAGE_OVERHEAD + estimateTokens(name) + estimateTokens(description) + schema;
}

function estimateMessage(message: ModelMessage): number {
  const known = knownMessages.get(message);
  if (known !== undefined) return known;
  const tokens = MESSAGE_OVERHEAD + estimateContent(message);
  knownMessages.set(message, tokens);
  return tokens;
}

function estimateContent(message: ModelMessage): number {
  switch (message.role) {
    case 'user':
      return listUserParts(message).reduce(
        (sum, part) => sum + estimatePart(part),
        estimateAttachments(message),
      );
    case 'assistant': {
      const calls = message.toolCalls ?? [];
      const texts = [message.text, message.reasoning ?? '', ...calls.map(({ input }) => input)];
      return texts.reduce((sum, text) => sum + estimateTokens(text), CALL_OVERHEAD * calls.length);
    }
    case 'tool':
      return message.results.reduce(
        (sum, { output, media = [] }) =>
          sum + CALL_OVERHEAD + estimateTokens(output) + media.reduce(addFile, 0),
        0,
      );
    default:
      return message satisfies never;
  }
}

const ATTACHMENT_BYTES = { unknown: 8_000, max: 60_000 };

/** Reserves space for the files of a message that a middleware adds later. */
function estimateAttachments({ content, attachments = [] }: UserMessage): number {
  if (typeof content !== 'string') return 0;
  return attachments.reduce((sum, { mimetype, size = ATTACHMENT_BYTES.unknown }) => {
    if (mimetype.startsWith('image/')) return sum + IMAGE_TOKENS;
    return sum + Math.ceil(Math.min(size, ATTACHMENT_BYTES.max) / BYTES_PER_TOKEN);
  }, 0);
}

const addFile = (sum: number, file: MediaPart): number => sum + estimateFile(file);

function estimatePart(part: UserPart): number {
  return part.type === 'text' ? estimateTokens(part.text) : estimateFile(part);
}

function estimateFile({ mediaType, data }: MediaPart): number {
  if (mediaType.startsWith('text/')) return Math.ceil(data.byteLength / BYTES_PER_TOKEN);
  if (mediaType.startsWith('image/')) return IMAGE_TOKENS;
  return Math.max(IMAGE_TOKENS, Math.ceil(data.byteLength / DOCUMENT_BYTES_PER_TOKEN));
}

/** Returns the beginning of a text, about `tokens` long. */
export function keepStart(text: string, tokens: number): string {
  return text.slice(0, charactersWithin(text, tokens)).toWellFormed();
}

/** Returns the end of a text, about `tokens` long. */
export function keepEnd(text: string, tokens: number): string {
  return text.slice(text.length - charactersWithin(text, tokens)).toWellFormed();
}

function charactersWithin(text: string, tokens: number): number {
  const whole = estimateTokens(text);
  return whole <= tokens ? text.length : Math.floor((text.length * tokens) / whole);
}
