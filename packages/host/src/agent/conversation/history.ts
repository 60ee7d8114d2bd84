import type { MessageBody } from '../../store/messages/message.js';
import type { ModelMessage } from '../model/model.js';

/** What of a stored message the model gets to see. */
export type HistoryMessage = Pick<
  MessageBody,
  'type' | 'content' | 'toolCalls' | 'attachments' | 'isComplete'
>;

const CUT_OFF = '(This answer was cut off before it was finished.)';
const NO_TEXT = '(No text.)';

/** Turns stored messages, oldest first, into the conversation a model is shown. */
export function toModelMessages(messages: readonly HistoryMessage[]): ModelMessage[] {
  return messages.flatMap(messagesOf);
}

function messagesOf(message: HistoryMessage): ModelMessage[] {
  switch (message.type) {
    case 'human':
      return [{ role: 'user', content: humanText(message) }];
    case 'ai':
      return [...callsOf(message), ...answerOf(message)];
    default:
      message.type satisfies never;
      // Rows of a newer version are no reason to fail a turn.
      return [];
  }
}

function humanText({ content, attachments }: HistoryMessage): string {
  const files = (attachments ?? []).map(
    ({ filename, mimetype }) => `(Attached: ${filename}, ${mimetype})`,
  );
  return [content.trim() ? content : '', ...files].filter(Boolean).join('\n') || NO_TEXT;
}

function callsOf({ toolCalls = [] }: HistoryMessage): ModelMessage[] {
  if (toolCalls.length === 0) return [];
  const calls = toolCalls.map(({ id, name, args }) => ({ id, name, input: JSON.stringify(args) }));
  const results = toolCalls.map(({ id, name, output, status }) => {
    return { id, name, output, isError: status === 'error' };
  });
  return [
    { role: 'assistant', text: '', toolCalls: calls },
    { role: 'tool', results },
  ];
}

/** An answer without words says nothing, unless it was cut off: then that is what there is to say. */
function answerOf({ content, isComplete }: HistoryMessage): ModelMessage[] {
  const said = content.trim() ? content : '';
  const text = [said, isComplete ? '' : CUT_OFF].filter(Boolean).join('\n\n');
  return text ? [{ role: 'assistant', text }] : [];
}
