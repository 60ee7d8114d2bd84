import type { Attachment, ErrorKind, MessagePart, ToolCall } from '@sibyl/protocol';
import type { MessageRow } from './database.js';

/** Why a turn has no complete answer. */
export interface MessageError {
  readonly status: 'aborted' | 'interrupted' | 'failed';
  readonly code: string;
  readonly message: string;
  readonly kind?: ErrorKind | undefined;
}

/** The fields that new and stored messages have in common. */
export interface MessageBody {
  readonly type: 'human' | 'ai';
  /** The text of all parts. */
  readonly content: string;
  /** What the message consists of, in the order it happened; undefined if it is only its text. */
  readonly parts?: readonly MessagePart[] | undefined;
  readonly requestId: string;
  readonly metadata?: Readonly<Record<string, unknown>> | undefined;
  readonly runId?: string | undefined;
  /** False for the partial answer of a turn that did not finish. */
  readonly isComplete: boolean;
  readonly error?: MessageError | undefined;
}

/** A message of a session; `seq` is the order of storing, `turn` counts user messages. */
export interface Message extends MessageBody {
  readonly id: string;
  readonly sessionId: string;
  readonly owner: string;
  readonly turn: number;
  readonly seq: number;
  readonly branch: number;
  /** The question of an answer; for a question, the message it continues from, if any. */
  readonly parent?: string | undefined;
  readonly createdAt: number;
  /** All messages with the same parent, this one included, if there are others. */
  readonly siblings?: readonly string[] | undefined;
}

export function toMessageRow(message: Message): MessageRow {
  return {
    owner: message.owner,
    id: message.id,
    session_id: message.sessionId,
    turn: message.turn,
    seq: message.seq,
    branch: message.branch,
    parent: message.parent ?? null,
    type: message.type,
    content: message.content,
    parts: jsonOrNull(message.parts),
    metadata: jsonOrNull(message.metadata),
    request_id: message.requestId,
    run_id: message.runId ?? null,
    is_complete: message.isComplete ? 1 : 0,
    error: jsonOrNull(message.error),
    created_at: message.createdAt,
  };
}

/** Named, because a statement for all columns cannot be prepared (see `StatementNames`). */
export const MESSAGE_COLUMNS = [
  'owner',
  'id',
  'session_id',
  'turn',
  'seq',
  'branch',
  'parent',
  'type',
  'content',
  'parts',
  'metadata',
  'request_id',
  'run_id',
  'is_complete',
  'error',
  'created_at',
] as const satisfies readonly (keyof MessageRow)[];

/** With the ids of siblings, separated by commas, if they were read. */
export function toMessage(row: MessageRow & { readonly siblings?: string | null }): Message {
  const siblings = row.siblings?.split(',') ?? [];
  return {
    id: row.id,
    sessionId: row.session_id,
    owner: row.owner,
    turn: row.turn,
    seq: row.seq,
    branch: row.branch,
    type: row.type,
    content: row.content,
    requestId: row.request_id,
    isComplete: row.is_complete === 1,
    createdAt: row.created_at,
    ...(row.parent !== null && { parent: row.parent }),
    ...(row.parts !== null && { parts: JSON.parse(row.parts) }),
    ...(row.metadata !== null && { metadata: JSON.parse(row.metadata) }),
    ...(row.run_id !== null && { runId: row.run_id }),
    ...(row.error !== null && { error: JSON.parse(row.error) }),
    ...(siblings.length > 1 && { siblings }),
  };
}

function jsonOrNull(value: unknown): string | null {
  return value === undefined ? null : JSON.stringify(value);
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
