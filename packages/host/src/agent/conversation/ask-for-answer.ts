import type { ModelMessage } from '../model/model.js';

const ASK =
  '(No more tools can be used in this turn. Answer now from what is known, and say plainly what is missing.)';

/** Ends a conversation with the wish for an answer instead of another tool call. */
export function askForAnswer(messages: readonly ModelMessage[]): ModelMessage[] {
  const last = messages.at(-1);
  if (last?.role !== 'user') return [...messages, { role: 'user', content: ASK }];
  const { content } = last;
  const asked =
    typeof content === 'string'
      ? `${content}\n\n${ASK}`
      : [...content, { type: 'text' as const, text: ASK }];
  return [...messages.slice(0, -1), { role: 'user', content: asked }];
}
