import { useCallback, useEffect, useRef, useState, useSyncExternalStore } from 'react';
import type { Chat, ChatState } from '../chat/chat.js';
import { openChat } from '../chat/open-chat.js';
import type { MessageToSend } from '../turns/turns.js';
import { useOracle } from './oracle-provider.js';

export type UseChat = ChatState &
  Pick<
    Chat,
    | 'send'
    | 'edit'
    | 'regenerate'
    | 'show'
    | 'discard'
    | 'withdraw'
    | 'abort'
    | 'loadOlder'
    | 'loadNewer'
    | 'showNewest'
    | 'reveal'
    | 'refresh'
  >;

const loading: ChatState = {
  messages: [],
  status: 'loading',
  waiting: 0,
  hasOlder: false,
  hasNewer: false,
  connection: 'connecting',
};

/** On a server no chat is open. */
const getServerState = () => loading;

const closedChat = {
  subscribe: () => () => undefined,
  getState: () => loading,
  edit: async () => undefined,
  regenerate: async () => undefined,
  show: async () => undefined,
  discard: () => undefined,
  withdraw: async () => false,
  abort: async () => false,
  loadOlder: async () => undefined,
  loadNewer: async () => undefined,
  showNewest: async () => undefined,
  reveal: async () => false,
  refresh: async () => undefined,
};

/**
 * The conversation of a session; `loading` without a session id. Follows active turns, including those
 * started before a reload or by another client. A message sent before the session is open waits for it.
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
  // After a change of session, the previous chat is still open for one render.
  const chat = open?.sessionId === sessionId ? open : undefined;
  const { subscribe, getState, ...commands } = chat ?? closedChat;
  const { edit, regenerate, show, discard, withdraw, abort, loadOlder, refresh } = commands;
  const { loadNewer, showNewest, reveal } = commands;
  const sendLater = useSendWhenOpen(chat, sessionId);
  const send = chat?.send ?? sendLater;
  const state = useSyncExternalStore(
    subscribe,
    useCallback(() => getState(), [getState]),
    getServerState,
  );
  return {
    ...state,
    send,
    ...{ edit, regenerate, show, discard, withdraw, abort, loadOlder, refresh },
    ...{ loadNewer, showNewest, reveal },
  };
}

interface PendingMessage {
  /** The target session; undefined for the next one that is opened. */
  readonly sessionId: string | undefined;
  readonly message: MessageToSend;
  readonly resolve: () => void;
  readonly reject: (reason: unknown) => void;
}

/** Queues messages until the chat is open. */
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
        // The page may call an older `send` after the chat has opened.
        flush();
      }),
    [sessionId, flush],
  );
}
