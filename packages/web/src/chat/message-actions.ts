import type { ChatMessage, Feedback } from '@sibyl/client';
import { createContext, use } from 'react';

/** What the buttons below a message do. */
export interface MessageActions {
  regenerate(answer: ChatMessage): void;
  /** Shows another version, by its `messageId`. */
  show(messageId: string): void;
  edit(question: ChatMessage): void;
  /** Stores what the user thinks of an answer, or withdraws it. */
  rate(answer: ChatMessage, feedback: Feedback | undefined): Promise<void>;
  /** Starts a conversation with a copy of the messages up to this one. */
  fork(message: ChatMessage): void;
}

export const MessageActionsContext = createContext<MessageActions>({
  regenerate: () => undefined,
  show: () => undefined,
  edit: () => undefined,
  rate: async () => undefined,
  fork: () => undefined,
});

export const useMessageActions = (): MessageActions => use(MessageActionsContext);
