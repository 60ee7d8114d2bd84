import type { Message as MessageView } from '@sibyl/protocol';
import type { AnswerDetails, AnswerDetailsStore } from '../store/answer-details.js';
import {
  joinReasoning,
  listAttachments,
  listToolCalls,
  type Message,
  type MessageError,
} from '../store/message.js';
import { toUsageField } from './run-recorder.js';

/** Converts messages of one session to their wire form, with what belongs to answers besides their parts. */
export async function toMessageViews(
  messages: readonly Message[],
  store: AnswerDetailsStore,
): Promise<MessageView[]> {
  const details = await store.read(messages);
  return messages.map((message) => toMessageView(message, details.get(message.id)));
}

/** The wire form of a message. */
export function toMessageView(message: Message, details: AnswerDetails = {}): MessageView {
  const { parts, parent, error, siblings } = message;
  const toolCalls = listToolCalls(message);
  const reasoning = joinReasoning(message);
  const attachments = listAttachments(message);
  return {
    id: message.id,
    type: message.type,
    content: message.content,
    createdAt: new Date(message.createdAt).toISOString(),
    ...(toolCalls.length > 0 && { toolCalls }),
    ...(reasoning && { reasoning }),
    ...(attachments.length > 0 && { attachments }),
    requestId: message.requestId,
    isComplete: message.isComplete,
    ...(parts && { parts: [...parts] }),
    ...(parent !== undefined && { parentId: parent }),
    ...(error && { status: error.status, error: toErrorView(error) }),
    ...(siblings && { siblings: [...siblings] }),
    ...(details.model !== undefined && { model: details.model }),
    ...toUsageField(details.usage),
    ...(details.feedback && { feedback: details.feedback }),
  };
}

const toErrorView = ({ code, message, kind }: MessageError) => ({
  code,
  message,
  ...(kind && { kind }),
});
