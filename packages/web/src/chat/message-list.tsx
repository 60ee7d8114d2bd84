import type { UseChat } from '@sibyl/client/react';
import { useEffect, useLayoutEffect, useRef } from 'react';
import { MessageView } from './message-view.js';

/** Within this distance from the end, the list scrolls with new text. */
const NEAR_END_PX = 120;

/** The messages of a session; loads older ones when the top becomes visible. */
export function MessageList({ chat }: { readonly chat: UseChat }) {
  const { messages, hasOlder, loadOlder, status } = chat;
  const list = useRef<HTMLDivElement>(null);
  const top = useRef<HTMLDivElement>(null);
  useAutoScroll(list, messages);

  useEffect(() => {
    if (!top.current || !hasOlder) return;
    const watch = new IntersectionObserver(([entry]) => {
      if (entry?.isIntersecting) void loadOlder();
    });
    watch.observe(top.current);
    return () => watch.disconnect();
  }, [hasOlder, loadOlder]);

  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard.
    <div ref={list} className="messages" role="log" aria-label="Messages" tabIndex={0}>
      {hasOlder && (
        <div ref={top} className="quiet">
          Loading earlier messages…
        </div>
      )}
      {messages.map((message) => (
        <MessageView key={message.id} message={message} />
      ))}
      {status === 'rejoining' && (
        <p className="quiet" role="status">
          Connection lost. Reconnecting…
        </p>
      )}
    </div>
  );
}

/** Follows the end while the reader is there; otherwise keeps the position when older messages load. */
function useAutoScroll(
  list: React.RefObject<HTMLDivElement | null>,
  messages: UseChat['messages'],
): void {
  const isNear = useRef(true);
  const first = useRef<string>(undefined);
  const height = useRef(0);
  useEffect(() => {
    const element = list.current;
    if (!element) return;
    const update = () => {
      isNear.current =
        element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END_PX;
    };
    element.addEventListener('scroll', update, { passive: true });
    return () => element.removeEventListener('scroll', update);
  }, [list]);
  useLayoutEffect(() => {
    const element = list.current;
    if (!element) return;
    const isOlderAdded = first.current !== undefined && first.current !== messages[0]?.id;
    if (isOlderAdded && !isNear.current) element.scrollTop += element.scrollHeight - height.current;
    else if (isNear.current) element.scrollTop = element.scrollHeight;
    first.current = messages[0]?.id;
    height.current = element.scrollHeight;
  }, [list, messages]);
}
