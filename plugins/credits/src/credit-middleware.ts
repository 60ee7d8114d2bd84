import {
  type Middleware,
  type ModelMessage,
  type ModelRequest,
  OracleError,
  type UserPart,
} from '@sibyl/plugin-kit';
import type { ActiveHolds } from './credit-gate.js';

/** Sets credit aside for each model call before it is made. */
export const creditMiddleware = (holds: ActiveHolds): Middleware => ({
  name: 'credits',
  wrapModel: async (request, next, { user, session }) => {
    const { id: sessionId, requestId } = session;
    const hold = holds.find({ owner: user.did, sessionId, requestId });
    // The gate creates a hold for every turn; without one, nothing could be charged for the call.
    if (!hold) throw new OracleError('gate_unavailable');
    const call = { model: request.model.id, input: estimateRequest(request) };
    try {
      await hold.prepare(call);
      return await next(request);
    } finally {
      hold.conclude(call);
    }
  },
});

const BYTES_PER_TOKEN = 4;
const IMAGE_TOKENS = 1500;
const DOCUMENT_BYTES_PER_TOKEN = 20;

/** Estimates by bytes, since characters of other scripts take more tokens. */
export function estimateTokens(text: string): number {
  return Math.ceil(Buffer.byteLength(text) / BYTES_PER_TOKEN);
}

/** Estimates the input tokens of a model call. */
export function estimateRequest({ system, messages, tools }: ModelRequest): number {
  const texts = [system, ...messages.map(readText), JSON.stringify(tools)];
  const tokens = texts.reduce((sum, text) => sum + estimateTokens(text), 0);
  return messages.flatMap(listFiles).reduce((sum, file) => sum + estimateFile(file), tokens);
}

function readText(message: ModelMessage): string {
  switch (message.role) {
    case 'user':
      return [readContent(message), message.note ?? ''].join('\n');
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

function readContent({ content }: Extract<ModelMessage, { role: 'user' }>): string {
  if (typeof content === 'string') return content;
  return content.map((part) => (part.type === 'text' ? part.text : '')).join('\n');
}

type FilePart = Extract<UserPart, { type: 'file' }>;

function listFiles(message: ModelMessage): FilePart[] {
  if (message.role !== 'user' || typeof message.content === 'string') return [];
  return message.content.filter((part) => part.type === 'file');
}

function estimateFile({ mediaType, data }: FilePart): number {
  if (mediaType.startsWith('text/')) return Math.ceil(data.byteLength / BYTES_PER_TOKEN);
  if (mediaType.startsWith('image/')) return IMAGE_TOKENS;
  return Math.max(IMAGE_TOKENS, Math.ceil(data.byteLength / DOCUMENT_BYTES_PER_TOKEN));
}
