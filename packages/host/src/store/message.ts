import type { Attachment, ToolCall } from '@sibyl/protocol';
import type { MessageRow } from './database.js';

/** The fields that new and stored messages have in common. */
export interface MessageBody {
  readonly type: 'human' | 'ai';
  readonly content: string;
  readonly requestId: string;
  readonly toolCalls?: readonly ToolCall[] | undefined;
  readonly reasoning?: string | undefined;
  readonly attachments?: readonly Attachment[] | undefined;
  readonly metadata?: Readonly<Record<string, unknown>> | undefined;
  readonly runId?: string | undefined;
  /** False for the partial answer of a turn that did not finish. */
  readonly isComplete: boolean;
}

/** A message of a session; `seq` is the order of storing, `turn` counts user messages. */
export interface Message extends MessageBody {
  readonly id: string;
  readonly sessionId: string;
  readonly owner: string;
  readonly turn: number;
  readonly seq: number;
  readonly createdAt: number;
}

export function toMessageRow(message: Message): MessageRow {
  return {
    id: message.id,
    session_id: message.sessionId,
    owner: message.owner,
    turn: message.turn,
    seq: message.seq,
    type: message.type,
    content: message.content,
    tool_calls: jsonOrNull(message.toolCalls),
    reasoning: message.reasoning ?? null,
    attachments: jsonOrNull(message.attachments),
    metadata: jsonOrNull(message.metadata),
    request_id: message.requestId,
    run_id: message.runId ?? null,
    is_complete: message.isComplete ? 1 : 0,
    created_at: message.createdAt,
  };
}

export function toMessage(row: MessageRow): Message {
  return {
    id: row.id,
    sessionId: row.session_id,
    owner: row.owner,
    turn: row.turn,
    seq: row.seq,
    type: row.type,
    content: row.content,
    requestId: row.request_id,
    isComplete: row.is_complete === 1,
    createdAt: row.created_at,
    ...(row.tool_calls !== null && { toolCalls: JSON.parse(row.tool_calls) }),
    ...(row.reasoning !== null && { reasoning: row.reasoning }),
    ...(row.attachments !== null && { attachments: JSON.parse(row.attachments) }),
    ...(row.metadata !== null && { metadata: JSON.parse(row.metadata) }),
    ...(row.run_id !== null && { runId: row.run_id }),
  };
}

function jsonOrNull(value: unknown): string | null {
  return value === undefined ? null : JSON.stringify(value);
}
