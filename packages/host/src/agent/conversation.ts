import type { MessagePart, ToolCall } from '@sibyl/protocol';
import type { ModelMessage, ModelToolCall, ModelToolResult } from '../models/model.js';
import { listAttachments, type Message } from '../store/message-store.js';
import { composeNote, type NoteOptions } from './prompt.js';
import { takeCallId } from './run-tools.js';
import type { AssistantMessage } from './steps.js';

/** The fields of a stored message that the model sees. */
export type HistoryMessage = Pick<
  Message,
  'type' | 'content' | 'parts' | 'metadata' | 'isComplete' | 'createdAt'
>;

/** What the notes of the messages say about the turn; everything but the zone is about the newest message. */
export type TurnNote = Pick<NoteOptions, 'timezone' | 'now' | 'degraded'>;

type UserMessage = Extract<ModelMessage, { role: 'user' }>;

const INCOMPLETE = '(This answer was interrupted before it was complete.)';
const NO_TEXT = '(No text.)';

/** Converts stored messages, oldest first, to the conversation for the model. */
export function toModelMessages(
  messages: readonly HistoryMessage[],
  newest: TurnNote,
): ModelMessage[] {
  const asked = messages.findLastIndex(({ type }) => type === 'human');
  const earlier = { timezone: newest.timezone };
  return messages.flatMap((message, i) => {
    switch (message.type) {
      case 'human':
        return toUserMessage(message, i === asked ? newest : earlier);
      case 'ai':
        return toAnswerMessages(message);
      default:
        message.type satisfies never;
        // Rows of a newer version must not fail a turn.
        return [];
    }
  });
}

function toUserMessage(message: HistoryMessage, turn: TurnNote): UserMessage {
  const { createdAt: sentAt, content, metadata } = message;
  const note = composeNote({ sentAt, metadata, ...turn });
  const said = content.trim() ? [content] : [];
  const attachments = listAttachments(message);
  if (attachments.length === 0) return { role: 'user', content: said[0] ?? NO_TEXT, note };
  const files = attachments.map(({ filename, mimetype }) => `(Attached: ${filename}, ${mimetype})`);
  return { role: 'user', content: [...said, ...files].join('\n'), note, attachments };
}

/** Texts and calls in the order they happened. An empty answer is omitted, unless it was interrupted. */
function toAnswerMessages({ content, parts, isComplete }: HistoryMessage): ModelMessage[] {
  const messages: ModelMessage[] = [];
  let step: AnswerStep = { text: '', calls: [] };
  for (const part of parts ?? [{ type: 'text', text: content } satisfies MessagePart]) {
    if (part.type === 'tool-call') step.calls.push(part.call);
    if (part.type !== 'text') continue;
    // A text after a call begins a new step.
    if (step.calls.length > 0) {
      messages.push(...toCallMessages(step));
      step = { text: '', calls: [] };
    }
    step.text += part.text;
  }
  const hasCalls = step.calls.length > 0;
  if (hasCalls) messages.push(...toCallMessages(step));
  const said = hasCalls ? '' : removeSeparator(step.text);
  const text = [said, isComplete ? '' : INCOMPLETE].filter(Boolean).join(PARAGRAPH);
  if (text) messages.push({ role: 'assistant', text });
  return messages;
}

/** What the model said in one call, and the tools it called then. */
interface AnswerStep {
  text: string;
  readonly calls: ToolCall[];
}

const removeSeparator = (text: string) => (text.trim() ? text.replace(/^\n+/, '') : '');

function toCallMessages({ text, calls }: AnswerStep): ModelMessage[] {
  const results = calls.map(({ id, name, output, status }) => {
    return { id, name, output, isError: status === 'error' };
  });
  const toolCalls = calls.map(({ id, name, args }) => ({ id, name, input: JSON.stringify(args) }));
  return [
    { role: 'assistant', text: removeSeparator(text), toolCalls },
    { role: 'tool', results },
  ];
}

/** Separates the texts of two steps in the stored answer. */
export const PARAGRAPH = '\n\n';

const NO_ANSWER = '(No answer was given.)';
const BEGAN_EARLIER = '(The conversation began earlier.)';
const NO_RESULT = JSON.stringify({ error: 'The call was interrupted before it had a result.' });

/**
 * Makes a conversation valid for every provider: it begins with the user, user and assistant alternate, and every tool
 * call has a unique id and exactly one result directly after it. The ids of its calls are added to those that are taken.
 */
export function toWellFormed(
  messages: readonly ModelMessage[],
  takenIds = new Set<string>(),
): ModelMessage[] {
  const formed: ModelMessage[] = [];
  let open: readonly UnansweredCall[] = [];
  for (const message of messages) {
    // Results without a call are dropped.
    const results = message.role === 'tool' ? message.results : [];
    if (open.length > 0) formed.push(answerCalls(open, results));
    open = message.role === 'assistant' ? addAnswer(message, formed, takenIds) : [];
    if (message.role === 'user') addQuestion(message, formed);
  }
  if (open.length > 0) formed.push(answerCalls(open, []));
  return formed;
}

function addQuestion(message: UserMessage, formed: ModelMessage[]): void {
  const last = formed.at(-1);
  if (last && last.role !== 'assistant') formed.push({ role: 'assistant', text: NO_ANSWER });
  formed.push(message.content.length > 0 ? message : { ...message, content: NO_TEXT });
}

/** Joins it with an answer before it; returns its calls. */
function addAnswer(
  { toolCalls = [], ...message }: AssistantMessage,
  formed: ModelMessage[],
  takenIds: Set<string>,
): readonly UnansweredCall[] {
  const last = formed.at(-1);
  if (last === undefined) formed.push({ role: 'user', content: BEGAN_EARLIER });
  const before = last?.role === 'assistant' ? last : undefined;
  if (before) formed.pop();
  const text = [before?.text, message.text].filter(Boolean).join(PARAGRAPH);
  const open = toolCalls.map((call) => {
    return { givenId: call.id, call: { ...call, id: takeCallId(call.id, takenIds) } };
  });
  const calls = open.map(({ call }) => call);
  if (calls.length > 0) formed.push({ ...message, text, toolCalls: calls });
  else formed.push({ ...message, text: text || NO_ANSWER });
  return open;
}

/** A call without a result yet, with the id that its result refers to. */
interface UnansweredCall {
  readonly givenId: string;
  readonly call: ModelToolCall;
}

/** A result for every open call. */
function answerCalls(
  open: readonly UnansweredCall[],
  results: readonly ModelToolResult[],
): ModelMessage {
  const left = [...results];
  const closed = open.map(({ givenId, call: { id, name } }): ModelToolResult => {
    const found = left.findIndex((result) => result.id === givenId);
    const [result] = found < 0 ? [] : left.splice(found, 1);
    return result ? { ...result, id, name } : { id, name, output: NO_RESULT, isError: true };
  });
  return { role: 'tool', results: closed };
}
