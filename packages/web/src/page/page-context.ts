import type {
  BrowserSigner,
  ChatMessage,
  Feedback,
  MessageToSend,
  OracleCard,
  SessionsChangedEvent,
} from '@sibyl/client';
import { createContext, use, useEffect, useMemo, useRef } from 'react';
import type { Outbox } from '../chat/outbox.js';

/** Values that all parts of the page need. */
export interface PageValues {
  readonly signer: BrowserSigner;
  readonly card: OracleCard;
  readonly settings: PageSettings;
  readonly outbox: Outbox;
}

/** Settings from the server that only the page needs. */
export interface PageSettings {
  /** The homeserver for uploads with Matrix. */
  readonly matrixBaseUrl?: string;
}

export const PageContext = createContext<PageValues | undefined>(undefined);

export function usePage(): PageValues {
  const values = use(PageContext);
  if (!values) throw new Error('usePage must be used inside PageContext');
  return values;
}

/** The conversation that is open. */
interface ConversationValues {
  readonly sessionId: string;
  send(message: MessageToSend): void;
}

export const ConversationContext = createContext<ConversationValues | undefined>(undefined);

export function useConversation(): ConversationValues {
  const values = use(ConversationContext);
  if (!values) throw new Error('useConversation must be used inside ConversationContext');
  return values;
}

type Listener = (event: SessionsChangedEvent) => void;

/** Passes changes of the user's sessions, by any client, to the parts of the page. */
export interface SessionChanges {
  notify: Listener;
  subscribe(listener: Listener): () => void;
}

export const SessionChangesContext = createContext<SessionChanges | undefined>(undefined);

export function useCreateSessionChanges(): SessionChanges {
  return useMemo(() => {
    const listeners = new Set<Listener>();
    return {
      notify: (event) => {
        for (const listener of listeners) listener(event);
      },
      subscribe: (listener) => {
        listeners.add(listener);
        return () => listeners.delete(listener);
      },
    };
  }, []);
}

/** Calls the newest listener for every change. */
export function useSessionChanges(listener: Listener): void {
  const changes = use(SessionChangesContext);
  const latest = useRef(listener);
  useEffect(() => {
    latest.current = listener;
  });
  useEffect(() => changes?.subscribe((event) => latest.current(event)), [changes]);
}

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
