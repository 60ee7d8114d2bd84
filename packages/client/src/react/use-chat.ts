import { useCallback, useEffect, useRef, useState, useSyncExternalStore } from 'react';
import type { Chat, ChatState } from '../chat/chat.js';
import { openChat } from '../chat/open-chat.js';
import type { MessageToSend } from '../oracle-client.js';
import { useOracle } from './oracle-provider.js';

export type UseChat = ChatState & Pick<Chat, 'send' | 'abort' | 'loadOlder' | 'refresh'>;

const loading: ChatState = {
  messages: [],
  status: 'loading',
  waiting: 0,
  hasOlder: false,
  connection: 'connecting',
};

const closedChat = {
  subscribe: () => () => undefined,
  getState: () => loading,
  abort: async () => false,
  loadOlder: async () => undefined,
  refresh: async () => undefined,
};

/**
 * The conversation of a session, `loading` as long as there is none. A turn that is at work, because
 * the page was reloaded or another one began it, is followed. A message sent before the session is open
 * is sent once it is.
 */
export function useChat(sessionId: string | undefined): UseChat {
  const client = useOracle();
  const [open, setOpen] = useState<Chat>();
  useEffect(() => {
    if (sessionId === undefined) return undefined;
    const chat = openChat(client, sessionId);
    setOpen(chat);
    return () => {
      chat.close();
      setOpen(undefined);
    };
  }, [client, sessionId]);
  // Between two sessions the one that is left is still open.
  const chat = open?.sessionId === sessionId ? open : undefined;
  const { subscribe, getState, abort, loadOlder, refresh } = chat ?? closedChat;
  const sendLater = useSendWhenOpen(chat, sessionId);
  const send = chat?.send ?? sendLater;
  const state = useSyncExternalStore(
    subscribe,
    useCallback(() => getState(), [getState]),
  );
  return { ...state, send, abort, loadOlder, refresh };
}

interface PendingMessage {
  /** Where it was to be sent; undefined for the session that is opened next. */
  readonly sessionId: string | undefined;
  readonly message: MessageToSend;
  readonly resolve: () => void;
  readonly reject: (reason: unknown) => void;
}

/** Keeps messages until there is a chat to send them in. */
function useSendWhenOpen(chat: Chat | undefined, sessionId: string | undefined): Chat['send'] {
  const pending = useRef<readonly PendingMessage[]>([]);
  const current = useRef<Chat>(undefined);
  const flush = useCallback(() => {
    const { current: open } = current;
    if (!open) return;
    const isDue = (each: PendingMessage) => [undefined, open.sessionId].includes(each.sessionId);
    const due = pending.current.filter(isDue);
    pending.current = pending.current.filter((each) => !isDue(each));
    for (const { message, resolve, reject } of due) open.send(message).then(resolve, reject);
  }, []);
  useEffect(() => {
    current.current = chat;
    flush();
    return () => {
      current.current = undefined;
    };
  }, [chat, flush]);
  return useCallback(
    (message) =>
      new Promise<void>((resolve, reject) => {
        pending.current = [...pending.current, { sessionId, message, resolve, reject }];
        // A page may still call this when the chat has opened meanwhile.
        flush();
      }),
    [sessionId, flush],
  );
}
