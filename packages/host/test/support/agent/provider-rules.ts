import type { ModelMessage } from '../../../src/models/model.js';

/** Finds what providers would reject in a conversation. */
export function findProviderErrors(messages: readonly ModelMessage[]): string[] {
  return [...findOrderErrors(messages), ...findIdErrors(messages), ...findContentErrors(messages)];
}

const FOLLOWERS = {
  user: ['assistant', 'calls'],
  assistant: ['user'],
  calls: ['tool'],
  tool: ['assistant', 'calls'],
};

function classifyMessage(message: ModelMessage): keyof typeof FOLLOWERS {
  return message.role === 'assistant' && message.toolCalls?.length ? 'calls' : message.role;
}

function findOrderErrors(messages: readonly ModelMessage[]): string[] {
  const kinds = messages.map(classifyMessage);
  const errors = kinds.slice(1).flatMap((kind, i) => {
    const before = kinds[i] ?? 'user';
    return FOLLOWERS[before].includes(kind) ? [] : [`${kind} after ${before}`];
  });
  if (kinds[0] !== 'user') errors.push(`begins with ${kinds[0]}`);
  if (kinds.at(-1) === 'calls') errors.push('ends with open calls');
  return errors;
}

function findIdErrors(messages: readonly ModelMessage[]): string[] {
  const seen = new Set<string>();
  return messages.flatMap((message, i) => {
    if (message.role !== 'assistant' || !message.toolCalls?.length) return [];
    const ids = message.toolCalls.map(({ id }) => id);
    const next = messages[i + 1];
    const answered = next?.role === 'tool' ? next.results.map(({ id }) => id) : [];
    const errors = ids.filter((id) => id === '' || seen.has(id)).map((id) => `id ${id} again`);
    for (const id of ids) seen.add(id);
    return String(ids) === String(answered) ? errors : [...errors, `results ${answered} of ${ids}`];
  });
}

function findContentErrors(messages: readonly ModelMessage[]): string[] {
  return messages.flatMap((message) => {
    switch (message.role) {
      case 'user':
        return message.content.length > 0 ? [] : ['empty user message'];
      case 'assistant':
        return message.text || message.toolCalls?.length
          ? findCallErrors(message)
          : ['empty answer'];
      case 'tool':
        return message.results.length > 0 ? [] : ['no results'];
      default:
        return message satisfies never;
    }
  });
}

function findCallErrors({
  toolCalls = [],
}: Extract<ModelMessage, { role: 'assistant' }>): string[] {
  const broken = toolCalls.filter(({ input }) => !input.startsWith('{'));
  const unnamed = toolCalls.filter(({ name }) => !/^[\w-]{1,64}$/.test(name));
  return [...broken.map(({ id }) => `input of ${id}`), ...unnamed.map(({ id }) => `name of ${id}`)];
}
