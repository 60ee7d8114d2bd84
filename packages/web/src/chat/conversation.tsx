import type { MessageToSend } from '@sibyl/client';
import { useChat } from '@sibyl/client/react';
import { useEffect, useRef } from 'react';
import { SendContext } from '../page/page-context.js';
import { type ChatFrame, ChatHeader } from './chat-header.js';
import { Composer } from './composer.js';
import { MessageList } from './message-list.js';

interface ConversationProps extends ChatFrame {
  readonly sessionId: string;
  readonly title: string | undefined;
  /** The first message of a new session, not sent yet. */
  readonly opening: MessageToSend | undefined;
  readonly onTurnOver: () => Promise<void>;
}

/** One session: its messages and the composer. */
export function Conversation(props: ConversationProps) {
  const { sessionId, title = 'Conversation', opening, onTurnOver, ...frame } = props;
  const chat = useChat(sessionId);
  const isBusy = ['sending', 'running', 'rejoining'].includes(chat.status);
  useOnce(opening !== undefined && chat.status === 'ready', () => {
    if (opening !== undefined) void chat.send(opening);
  });
  useAfterTurn(isBusy, onTurnOver);
  return (
    <main className="conversation">
      <ChatHeader {...frame} title={title} connection={chat.connection} hasEvents />
      <SendContext value={chat.send}>
        <MessageList chat={chat} />
      </SendContext>
      <Composer
        waiting={chat.waiting}
        isBusy={isBusy}
        error={chat.error}
        onSend={chat.send}
        onStop={chat.abort}
      />
    </main>
  );
}

/** Runs once, as soon as `isReady` is true. */
function useOnce(isReady: boolean, run: () => void): void {
  const hasRun = useRef(false);
  useEffect(() => {
    if (!isReady || hasRun.current) return;
    hasRun.current = true;
    run();
  });
}

/** Refreshes the list after a turn, and again later, since the title is generated after the turn. */
function useAfterTurn(isBusy: boolean, run: () => Promise<void>): void {
  const wasBusy = useRef(false);
  useEffect(() => {
    if (wasBusy.current && !isBusy) {
      void run();
      setTimeout(() => void run(), TITLE_DELAY_MS);
    }
    wasBusy.current = isBusy;
  }, [isBusy, run]);
}

const TITLE_DELAY_MS = 2000;
