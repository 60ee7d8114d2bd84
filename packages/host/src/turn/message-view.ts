import type { Message as MessageView } from '@sibyl/protocol';
import type { Message } from '../store/messages/message.js';

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
