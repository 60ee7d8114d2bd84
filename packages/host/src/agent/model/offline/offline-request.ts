import type { ModelCall, ModelMessage, UserPart } from '../model.js';
import type { OfflineRequest } from './intent.js';

/** Boils a call down to what the rules look at. */
export function readRequest(call: ModelCall, now: Date): OfflineRequest {
  const { messages } = call;
  const asked = messages.findLastIndex(({ role }) => role === 'user');
  const question = messages[asked];
  const last = messages.at(-1);
  return {
    system: call.system,
    texts: messages.map(textOf).filter(Boolean),
    said: question ? textOf(question).trim() : '',
    fileCount: question?.role === 'user' ? partsOf(question.content, 'file').length : 0,
    step: messages.slice(asked + 1).filter(({ role }) => role === 'tool').length,
    results: last?.role === 'tool' ? last.results : [],
    tools: new Map(call.tools.map((tool) => [tool.name, tool])),
    now,
  };
}

/** What a message says, tool results left out. */
export function textOf(message: ModelMessage): string {
  switch (message.role) {
    case 'user':
      if (typeof message.content === 'string') return message.content;
      return partsOf(message.content, 'text')
        .map(({ text }) => text)
        .join('\n');
    case 'assistant':
      return message.text;
    case 'tool':
      return '';
    default:
      return message satisfies never;
  }
}

function partsOf<T extends UserPart['type']>(content: string | readonly UserPart[], type: T) {
  const parts = typeof content === 'string' ? [] : content;
  return parts.filter((part): part is Extract<UserPart, { type: T }> => part.type === type);
}
