import { useCallback, useEffect, useState, useSyncExternalStore } from 'react';
import type { Chat, ChatState } from '../chat/chat.js';
import { openChat } from '../chat/open-chat.js';
import { useOracle } from './oracle-provider.js';

export type UseChat = ChatState & Pick<Chat, 'send' | 'abort' | 'loadOlder' | 'refresh'>;

const loading: ChatState = {
  messages: [],
  status: 'loading',
  waiting: 0,
  hasOlder: false,
  connection: 'connecting',
};

const noChat = {
  subscribe: () => () => undefined,
  getState: () => loading,
  send: async () => undefined,
  abort: async () => false,
  loadOlder: async () => undefined,
  refresh: async () => undefined,
};

/**
 * The conversation of a session, `loading` as long as there is none. A turn that is at work, because
 * the page was reloaded or another one began it, is followed.
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
  const { subscribe, getState, send, abort, loadOlder, refresh } = chat ?? noChat;
  const state = useSyncExternalStore(
    subscribe,
    useCallback(() => getState(), [getState]),
  );
  return { ...state, send, abort, loadOlder, refresh };
}
