import type { ChatMessage } from '@sibyl/client';
import type { UseChat } from '@sibyl/client/react';
import { type ReactNode, type RefObject, useEffect, useMemo, useRef } from 'react';
import { t } from '../i18n/i18n.js';
import { Icon, IconButton } from '../ui/icon.js';
import { type DraftState, focusBox, mergeDraft } from './drafts.js';
import { MessageView, type Pause } from './message-view.js';
import type { UnsentMessage } from './outbox.js';
import { UnsentView, useDelayed } from './unsent-view.js';
import { KeepPosition, useFollow } from './use-follow.js';

interface MessageListProps {
  readonly chat: UseChat;
  readonly unsent: readonly UnsentMessage[];
  readonly onEditUnsent: (unsent: UnsentMessage) => void;
  /** A message to show, such as one that was found. */
  readonly target: string | undefined;
  /** Called once the target is shown, or cannot be. */
  readonly onTarget: (isFound: boolean) => void;
  /** What the last answer waits for. */
  readonly pause: Pause | undefined;
  /** Shown below the last message. */
  readonly after: ReactNode;
  /** The composer, with the button that jumps to the end. */
  readonly dock: (jump: ReactNode) => ReactNode;
}

/** So long that an empty conversation looks broken. */
const SLOW_MS = 1_000;

/** The messages of a session; loads older and newer ones before the reader gets there. */
export function MessageList(props: MessageListProps) {
  const { chat, unsent, onEditUnsent, target, onTarget, pause, after, dock } = props;
  const { hasOlder, hasNewer, loadOlder, loadNewer, showNewest } = chat;
  const messages = useShown(chat, unsent);
  const isSlow = useDelayed(chat.status === 'loading', SLOW_MS);
  const [first, last] = [messages[0], messages.at(-1)];
  const follow = useFollow(unsent.at(-1)?.requestId, hasNewer);
  const { scroll, thread, isFollowing, jump, leave } = follow;
  const top = useLoadNear(scroll, hasOlder, loadOlder, first?.id);
  const bottom = useLoadNear(scroll, hasNewer, loadNewer, last?.id);
  useTarget({ target, onTarget, chat, leave, thread });
  return (
    <>
      <div
        ref={scroll}
        className="scroll"
        data-following={isFollowing}
        role="log"
        aria-label={t('chat.messages')}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard.
        tabIndex={0}
      >
        <div ref={thread} className="thread">
          {isSlow && (
            <p className="line small quiet" role="status">
              <span className="spin" />
              {t('chat.loading')}
            </p>
          )}
          {hasOlder && <LoadMark mark={top} text={t('chat.loadingOlder')} />}
          <KeepPosition {...follow} edges={`${first?.id} ${last?.id}`}>
            {messages.map((message) => (
              <MessageView
                key={message.id}
                message={message}
                isLast={message === last && !hasNewer}
                pause={message === last ? pause : undefined}
              />
            ))}
          </KeepPosition>
          {hasNewer && <LoadMark mark={bottom} text={t('chat.loading')} />}
          {!hasNewer && after}
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
          <JumpButton onJump={() => void (hasNewer ? showNewest().then(jump) : jump())} />
        ),
      )}
    </>
  );
}

interface LoadMarkProps {
  readonly mark: RefObject<HTMLDivElement | null>;
  readonly text: string;
}

/** Where more messages will be. */
const LoadMark = ({ mark, text }: LoadMarkProps) => (
  <div ref={mark} className="small quiet">
    {text}
  </div>
);

function JumpButton({ onJump }: { readonly onJump: () => void }) {
  return (
    <button type="button" className="btn btn-s jump" onClick={onJump}>
      <Icon name="fall" />
      {t('chat.jump')}
    </button>
  );
}

/** How far outside of the window messages are loaded already. */
const NEAR = '1500px 0px';

/** Loads more when the end of what is loaded comes near; `edge` is the message there. */
function useLoadNear(
  scroll: RefObject<HTMLDivElement | null>,
  hasMore: boolean,
  load: () => Promise<void>,
  edge: string | undefined,
): RefObject<HTMLDivElement | null> {
  const mark = useRef<HTMLDivElement>(null);
  // Again with another edge: the mark may still be near.
  useEffect(() => {
    if (!mark.current || !hasMore) return;
    const watch = new IntersectionObserver(
      (entries) => {
        // A busy browser reports several changes at once.
        if (entries.at(-1)?.isIntersecting) void load();
      },
      { root: scroll.current, rootMargin: NEAR },
    );
    watch.observe(mark.current);
    return () => watch.disconnect();
  }, [scroll, hasMore, load, edge]);
  return mark;
}

/** Long enough to be noticed. */
const HIGHLIGHT_MS = 3_000;

interface TargetDeps extends Pick<MessageListProps, 'target' | 'onTarget' | 'chat'> {
  readonly leave: () => void;
  readonly thread: RefObject<HTMLDivElement | null>;
}

/** Scrolls to a message, wherever in the session it is, and highlights it briefly. */
function useTarget({ target, onTarget, chat, leave, thread }: TargetDeps): void {
  const { reveal, status } = chat;
  const isLoading = status === 'loading';
  const done = useRef(onTarget);
  useEffect(() => {
    done.current = onTarget;
  });
  useEffect(() => {
    if (!target || isLoading) return;
    let isCurrent = true;
    const show = async () => {
      const isFound = await reveal(target);
      // Rendered by then.
      await new Promise(requestAnimationFrame);
      if (!isCurrent) return;
      const element = thread.current?.querySelector<HTMLElement>(
        `[data-message="${CSS.escape(target)}"]`,
      );
      if (element) {
        leave();
        element.scrollIntoView({ block: 'center' });
        // Messages that come into view get their real height.
        requestAnimationFrame(() => element.scrollIntoView({ block: 'center' }));
        element.dataset.found = '';
        setTimeout(() => delete element.dataset.found, HIGHLIGHT_MS);
      }
      done.current(isFound);
    };
    void show();
    return () => {
      isCurrent = false;
    };
  }, [target, isLoading, reveal, leave, thread]);
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

/** Messages that wait for the current answer. */
export function Queue({ chat, draft }: { readonly chat: UseChat; readonly draft: DraftState }) {
  const waiting = chat.messages.filter(
    ({ type, status }) => type === 'human' && status === 'waiting',
  );
  const edit = async ({ requestId, content, attachments }: ChatMessage) => {
    if (!(await chat.withdraw(requestId))) return;
    const message = { message: content, attachments: [...attachments] };
    draft.change(mergeDraft(draft.latest(), message));
    focusBox();
  };
  return waiting.map((message) => (
    <div key={message.requestId} className="queue" role="status">
      <span className="quiet">{t('chat.queue.next')}</span>
      <span className="grow clip" dir="auto">
        {message.content}
      </span>
      <IconButton icon="edit" label={t('chat.queue.edit')} onClick={() => void edit(message)} />
      <button
        type="button"
        className="btn btn-quiet btn-s"
        onClick={() => void chat.withdraw(message.requestId)}
      >
        {t('chat.queue.withdraw')}
      </button>
    </div>
  ));
}
