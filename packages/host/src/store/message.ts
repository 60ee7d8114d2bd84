import type { Attachment, MessagePart, ToolCall } from '@sibyl/protocol';
import { type MessageRow, messages, type StoredMessage } from './schema/messages.js';

/** A message of a session. */
export interface Message extends StoredMessage {
  /** All messages with the same parent, this one included, if there are others. */
  readonly siblings?: readonly string[] | undefined;
}

/** The fields that new and stored messages have in common. */
export type MessageBody = Omit<
  StoredMessage,
  'owner' | 'id' | 'sessionId' | 'turn' | 'seq' | 'branch' | 'parent' | 'createdAt'
>;

/** With the ids of siblings, separated by commas, if they were read. */
export function toMessage(row: MessageRow & { readonly siblings?: string | null }): Message {
  const siblings = row.siblings?.split(',') ?? [];
  const message = messages.toValues(row);
  return siblings.length > 1 ? { ...message, siblings } : message;
}

type PartsField = Pick<MessageBody, 'parts'>;

export const listToolCalls = ({ parts = [] }: PartsField): ToolCall[] =>
  parts.flatMap((part) => (part.type === 'tool-call' ? [part.call] : []));

export const listAttachments = ({ parts = [] }: PartsField): Attachment[] =>
  parts.flatMap((part) => (part.type === 'file' ? [part.file] : []));

export const joinReasoning = ({ parts = [] }: PartsField): string =>
  parts.map((part) => (part.type === 'reasoning' ? part.text : '')).join('');

/** The parts of a user message; undefined if it is only its text. */
export function toQuestionParts(
  text: string,
  attachments: readonly Attachment[] = [],
): MessagePart[] | undefined {
  if (attachments.length === 0) return undefined;
  return [{ type: 'text', text }, ...attachments.map((file) => ({ type: 'file', file }) as const)];
}
