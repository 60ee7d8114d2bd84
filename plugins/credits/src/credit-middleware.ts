import { AsyncLocalStorage } from 'node:async_hooks';
import {
  type Middleware,
  type ModelMessage,
  type ModelRequest,
  OracleError,
  type TurnContext,
  type UserPart,
} from '@sibyl/plugin-kit';
import type { CallKey, HoldsAtWork } from './credit-gate.js';

/** The agent that answers the message; every other one runs within a tool call. */
const MAIN: CallKey = Symbol('main');

/**
 * Sees what each model is about to be sent, so that no call is made that could not be paid for. An agent makes one call
 * at a time, but several of one name may run side by side: what tells them apart is the tool call they run in.
 */
export function paidCalls(holds: HoldsAtWork): Middleware {
  const toolCall = new AsyncLocalStorage<CallKey>();
  const currentKey = () => toolCall.getStore() ?? MAIN;
  return {
    name: 'paid-calls',
    async beforeModel(request, turn) {
      const call = { model: request.model.id, input: estimateRequest(request) };
      const hold = findHold(holds, turn);
      // Every turn has a hold from the gate: without one, the call could not be charged to anyone.
      if (!hold) throw new OracleError('gate_unavailable');
      await hold.prepare(currentKey(), call);
      return undefined;
    },
    afterModel(_, turn) {
      findHold(holds, turn)?.conclude(currentKey());
    },
    async wrapToolCall({ input, name }, next, turn) {
      const key: CallKey = Symbol(name);
      try {
        return await toolCall.run(key, next, input);
      } finally {
        // A sub-agent that failed or was stopped never reported the end of its call.
        findHold(holds, turn)?.conclude(key);
      }
    },
  };
}

function findHold(holds: HoldsAtWork, { user, session }: TurnContext) {
  return holds.find({ owner: user.did, sessionId: session.id, requestId: session.requestId });
}

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
