import type { Message as MessageView, Run as RunView } from '@sibyl/protocol';
import type { Message } from '../store/messages/message.js';
import type { Run } from '../store/runs/run.js';

/** A stored message as the contract shows it (B3). */
export function messageView(message: Message): MessageView {
  const { toolCalls, reasoning, attachments } = message;
  return {
    id: message.id,
    type: message.type,
    content: message.content,
    createdAt: new Date(message.createdAt).toISOString(),
    ...(toolCalls && { toolCalls: [...toolCalls] }),
    ...(reasoning && { reasoning }),
    ...(attachments && { attachments: [...attachments] }),
    requestId: message.requestId,
    isComplete: message.isComplete,
  };
}

/** A stored run as the contract shows it (B4). */
export function runView(run: Run): RunView {
  return {
    runId: run.id,
    sessionId: run.sessionId,
    requestId: run.requestId,
    status: run.status,
    startedAt: new Date(run.startedAt).toISOString(),
    updatedAt: new Date(run.updatedAt).toISOString(),
    lastSeq: run.lastSeq,
    ...(run.messageId && { messageId: run.messageId }),
  };
}
