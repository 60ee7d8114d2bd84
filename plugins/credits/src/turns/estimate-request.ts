import type { ModelMessage, ModelRequest, UserPart } from '@sibyl/plugin-kit';

const BYTES_PER_TOKEN = 4;
const IMAGE_TOKENS = 1500;
const DOCUMENT_BYTES_PER_TOKEN = 20;

/** About how many tokens a text is: by bytes, since other scripts take more tokens a character. */
export function estimateTokens(text: string): number {
  return Math.ceil(Buffer.byteLength(text) / BYTES_PER_TOKEN);
}

/** About how many tokens a model will be sent. */
export function estimateRequest({ system, messages, tools }: ModelRequest): number {
  const texts = [system, ...messages.map(textOf), JSON.stringify(tools)];
  const tokens = texts.reduce((sum, text) => sum + estimateTokens(text), 0);
  return messages.flatMap(filesOf).reduce((sum, file) => sum + estimateFile(file), tokens);
}

function textOf(message: ModelMessage): string {
  switch (message.role) {
    case 'user':
      if (typeof message.content === 'string') return message.content;
      return message.content.map((part) => (part.type === 'text' ? part.text : '')).join('\n');
    case 'assistant':
      return [message.text, message.reasoning ?? '', JSON.stringify(message.toolCalls ?? [])].join(
        '\n',
      );
    case 'tool':
      return message.results.map(({ output }) => output).join('\n');
    default:
      return message satisfies never;
  }
}

type FilePart = Extract<UserPart, { type: 'file' }>;

function filesOf(message: ModelMessage): FilePart[] {
  if (message.role !== 'user' || typeof message.content === 'string') return [];
  return message.content.filter((part) => part.type === 'file');
}

function estimateFile({ mediaType, data }: FilePart): number {
  if (mediaType.startsWith('text/')) return Math.ceil(data.byteLength / BYTES_PER_TOKEN);
  if (mediaType.startsWith('image/')) return IMAGE_TOKENS;
  return Math.max(IMAGE_TOKENS, Math.ceil(data.byteLength / DOCUMENT_BYTES_PER_TOKEN));
}
