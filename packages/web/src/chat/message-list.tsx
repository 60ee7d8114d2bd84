import type { UseChat } from '@sibyl/client/react';
import { type ReactNode, useEffect, useMemo, useRef } from 'react';
import { t } from '../i18n/i18n.js';
import { Icon } from '../ui/icon.js';
import { MessageView } from './message-view.js';
import type { UnsentMessage } from './outbox.js';
import { UnsentView } from './unsent-view.js';
import { useFollow } from './use-follow.js';

interface MessageListProps {
  readonly chat: UseChat;
  readonly unsent: readonly UnsentMessage[];
  readonly onEditUnsent: (unsent: UnsentMessage) => void;
  /** Whether the last answer waits for a decision of the user. */
  readonly isPaused: boolean;
  /** Shown below the last message. */
  readonly after: ReactNode;
  /** The composer, with the button that jumps to the end. */
  readonly dock: (jump: ReactNode) => ReactNode;
}

/** The messages of a session; loads older ones when the top becomes visible. */
export function MessageList(props: MessageListProps) {
  const { chat, unsent, onEditUnsent, isPaused, after, dock } = props;
  const { hasOlder, loadOlder } = chat;
  const messages = useShown(chat, unsent);
  const top = useRef<HTMLDivElement>(null);
  const { scroll, thread, isFollowing, jump } = useFollow(
    messages[0]?.id,
    unsent.at(-1)?.requestId,
  );
  useEffect(() => {
    if (!top.current || !hasOlder) return;
    const watch = new IntersectionObserver(([entry]) => {
      if (entry?.isIntersecting) void loadOlder();
    });
    watch.observe(top.current);
    return () => watch.disconnect();
  }, [hasOlder, loadOlder]);
  const last = messages.at(-1);
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard. */}
      <div ref={scroll} className="scroll" role="log" aria-label={t('chat.messages')} tabIndex={0}>
        <div ref={thread} className="thread">
          {hasOlder && (
            <div ref={top} className="small quiet">
              {t('chat.loadingOlder')}
            </div>
          )}
          {messages.map((message) => (
            <MessageView
              key={message.id}
              message={message}
              isLast={message === last}
              isPaused={isPaused && message === last}
            />
          ))}
          {after}
          {unsent.map((each) => (
            <UnsentView
              key={`${each.requestId}:human`}
              unsent={each}
              onEdit={onEditUnsent}
              onDiscard={chat.discard}
            />
          ))}
        </div>
      </div>
      {dock(
        !isFollowing && (
          <button type="button" className="btn btn-s jump" onClick={jump}>
            <Icon name="fall" />
            {t('chat.jump')}
          </button>
        ),
      )}
    </>
  );
}

/** Without messages that wait, which are above the composer, and those that the outbox shows. */
function useShown({ messages }: UseChat, unsent: readonly UnsentMessage[]) {
  return useMemo(() => {
    const hidden = new Set(unsent.map(({ requestId }) => requestId));
    return messages.filter(
      ({ type, status, requestId }) =>
        status !== 'waiting' && !(type === 'human' && hidden.has(requestId)),
    );
  }, [messages, unsent]);
}
