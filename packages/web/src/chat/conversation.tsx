import type { ChatMessage, Feedback } from '@sibyl/client';
import { type UseChat, useApprovals, useChat, useOracle, useResource } from '@sibyl/client/react';
import { lazy, Suspense, useCallback, useEffect, useMemo, useState } from 'react';
import { explainError } from '../i18n/explain-error.js';
import { loadArea, t } from '../i18n/i18n.js';
import { Head } from '../page/head.js';
import {
  ConversationContext,
  type MessageActions,
  MessageActionsContext,
  usePage,
  useSessionChanges,
} from '../page/page-context.js';
import { forgetMessage, go, toHash } from '../page/router.js';
import { keepSession } from '../page/session-marks.js';
import { Dialog } from '../ui/dialog.js';
import { ErrorBoundary, LoadFailure } from '../ui/error-boundary.js';
import { Icon, IconButton } from '../ui/icon.js';
import { Menu } from '../ui/menu.js';
import { showToast } from '../ui/toasts.js';
import { Composer } from './composer.js';
import { type DraftState, mergeDraft, startEdit, useDraft } from './drafts.js';
import { MessageList, Queue } from './message-list.js';
import { useNotification } from './notify.js';
import type { OutgoingMessage, UnsentMessage } from './outbox.js';
import { useDelayed, useDelivery, useOnline } from './unsent-view.js';
import '../styles/answer.css';

interface ConversationProps {
  readonly sessionId: string;
  readonly title: string | undefined;
  /** Whether the last turn waits for an answer, of the user or of another program. */
  readonly isPaused: boolean;
  /** The message to show; by default the last one. */
  readonly messageId?: string | undefined;
}

/** One session: its messages and the composer. */
export function Conversation({ sessionId, title = '', isPaused, messageId }: ConversationProps) {
  const { outbox, signer } = usePage();
  const chat = useChat(sessionId);
  const unsent = useDelivery(sessionId, chat);
  const draft = useDraft(signer.did, sessionId);
  const isBusy = useIsBusy(chat, unsent);
  const send = (message: OutgoingMessage | string) => {
    // Another tab may be about to delete the conversation.
    keepSession(sessionId);
    outbox.add(typeof message === 'string' ? { message } : message, sessionId);
  };
  // A turn that another tab, device or schedule has started.
  useSessionChanges((event) => {
    if (event.sessionId === sessionId || event.change === 'reload') void chat.refresh();
  });
  const approvals = useSessionApprovals(sessionId, chat, isPaused);
  const actions = useActions(sessionId, chat, draft);
  useNotification(title, isBusy, chat);
  const editUnsent = ({ message }: UnsentMessage) => draft.change(mergeDraft(draft.draft, message));
  const editLast = () => {
    const last = chat.messages.findLast(({ type, messageId }) => type === 'human' && messageId);
    if (last) actions.edit(last);
  };
  return (
    <>
      <Banner chat={chat} />
      <Head title={title}>
        <ConversationMenu sessionId={sessionId} title={title} />
      </Head>
      <ConversationContext value={{ sessionId, send }}>
        <MessageActionsContext value={actions}>
          <MessageList
            chat={chat}
            unsent={unsent}
            onEditUnsent={editUnsent}
            target={messageId}
            onTarget={(isFound) => {
              forgetMessage(sessionId);
              if (!isFound) showToast({ text: t('chat.search.gone') });
            }}
            pause={approvals.pause}
            after={<ApprovalCards {...approvals} onDecided={() => void chat.refresh()} />}
            dock={(jump) => (
              <Composer
                draft={draft}
                isBusy={isBusy}
                onSend={send}
                onStop={chat.abort}
                onEditLast={editLast}
              >
                {jump}
                <Queue chat={chat} draft={draft} />
              </Composer>
            )}
          />
        </MessageActionsContext>
      </ConversationContext>
    </>
  );
}

/** Whether there is something to stop; a message that waits for a connection is discarded instead. */
function useIsBusy({ status }: UseChat, unsent: readonly UnsentMessage[]): boolean {
  const isOnline = useOnline();
  const isStuck = unsent.some(({ failure }) => failure ?? !isOnline);
  return status === 'running' || (['sending', 'rejoining'].includes(status) && !isStuck);
}

type Approvals = ReturnType<typeof useSessionApprovals>;

function ApprovalCards({ onDecided, ...all }: Approvals & { readonly onDecided: () => void }) {
  const cards = [
    ...all.approvals.map((approval) => (
      <ApprovalCard key={approval.id} {...all} approval={approval} onDecided={onDecided} />
    )),
    ...all.questions.map((question) => (
      <QuestionCard key={question.id} question={question} onAnswered={onDecided} />
    )),
  ];
  return cards.map((card) => (
    <ErrorBoundary key={card.key} fallback={<LoadFailure />}>
      <Suspense>{card}</Suspense>
    </ErrorBoundary>
  ));
}

const PAUSE_DELAY_MS = 1_000;

/** The tool calls and questions of a conversation that wait for the user, and what its answer waits for. */
function useSessionApprovals(sessionId: string, { status, error }: UseChat, isPaused: boolean) {
  const all = useApprovals({ sessionId });
  const asked = useQuestions(sessionId, isPaused);
  const refresh = useBoth(all.refresh, asked.refresh);
  // Nothing waits in a conversation that was deleted.
  const approvals = isGone(error) ? [] : all.approvals;
  const questions = isGone(error) || status === 'running' ? [] : asked.questions;
  const isForUser = approvals.length > 0 || questions.length > 0;
  const isLoading = all.isLoading || asked.isLoading;
  const isElsewhere = isPaused && status === 'ready' && !isLoading && !all.error;
  // Later, since a turn pauses before its approvals are loaded.
  const isSaid = useDelayed(isElsewhere && !isForUser, PAUSE_DELAY_MS);
  // A turn that pauses ends its stream. One that continues was decided elsewhere, or waited too long.
  useEffect(() => {
    if (status === 'ready' || status === 'running') refresh();
  }, [status, refresh]);
  // A turn of another program may end before the page has noticed that it runs.
  useSessionChanges((event) => {
    if (event.sessionId === sessionId || event.change === 'reload') refresh();
  });
  const elsewhere = isSaid ? ('elsewhere' as const) : undefined;
  const pause = isForUser ? ('decision' as const) : elsewhere;
  return { ...all, approvals, questions, pause, refresh };
}

const useBoth = (first: () => Promise<void>, second: () => Promise<void>) =>
  useCallback(() => {
    void first();
    void second();
  }, [first, second]);

/** What tools ask the user; calls for other programs are left out. */
function useQuestions(sessionId: string, isPaused: boolean) {
  const { questions: routes } = useOracle();
  const load = useCallback(
    async (signal: AbortSignal) => (isPaused ? routes.list(sessionId, { signal }) : []),
    [routes, sessionId, isPaused],
  );
  const { value = [], ...resource } = useResource(load);
  return { ...resource, questions: value.filter(({ kind }) => kind !== 'tool_call') };
}

const ApprovalCard = lazy(async () => {
  const [{ ApprovalCard }] = await Promise.all([
    import('../settings/approvals/approval-card.js'),
    loadArea('settings'),
  ]);
  return { default: ApprovalCard };
});

// For developers, therefore on demand.
const QuestionCard = lazy(async () => {
  const [{ QuestionCard }] = await Promise.all([
    import('../settings/approvals/question-card.js'),
    loadArea('settings'),
  ]);
  return { default: QuestionCard };
});

const EventsPanel = lazy(async () => ({
  default: (await import('../panels/events-panel.js')).EventsPanel,
}));

function ConversationMenu({ sessionId, title }: { readonly sessionId: string; title: string }) {
  const client = useOracle();
  const save = async () => {
    try {
      const { exportSession } = await import('./save-file.js');
      await exportSession(client, { sessionId, title });
    } catch (error) {
      showToast({ text: explainError(error as Error) });
    }
  };
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <Menu
        label={t('chat.more')}
        groups={[
          [
            { label: t('chat.export'), icon: 'save', run: () => void save() },
            { label: t('chat.events'), icon: 'pulse', run: () => setOpen(true) },
          ],
        ]}
      >
        <Icon name="more" />
      </Menu>
      {isOpen && (
        <Dialog title={t('chat.events')} onClose={() => setOpen(false)}>
          <div className="card-pad">
            <ErrorBoundary fallback={<LoadFailure />}>
              <Suspense fallback={t('chat.loading')}>
                <EventsPanel sessionId={sessionId} />
              </Suspense>
            </ErrorBoundary>
          </div>
        </Dialog>
      )}
    </>
  );
}

/** What the buttons below a message do. */
function useActions(sessionId: string, chat: UseChat, draft: DraftState): MessageActions {
  const { sessions, messages } = useOracle();
  const { send, withdraw, show, refresh } = chat;
  const isRunning = chat.status === 'running';
  const { draft: current, change } = draft;
  return useMemo(
    () => ({
      fork: async ({ messageId = '' }: ChatMessage) => {
        try {
          const forked = await sessions.fork(sessionId, messageId);
          go({ name: 'conversation', sessionId: forked.sessionId });
        } catch (error) {
          showToast({ text: explainError(error as Error) });
        }
      },
      regenerate: ({ messageId }: ChatMessage) => {
        if (!messageId) return;
        const requestId = crypto.randomUUID();
        const action = { label: t('chat.queue.withdraw'), run: () => void withdraw(requestId) };
        if (isRunning) showToast({ text: t('chat.regenerate.later'), action });
        keepSession(sessionId);
        void send({ regenerate: messageId, requestId });
      },
      show: (messageId: string) => void show(messageId),
      rate: async ({ messageId = '' }: ChatMessage, feedback: Feedback | undefined) => {
        await (feedback
          ? messages.setFeedback(sessionId, messageId, feedback)
          : messages.withdrawFeedback(sessionId, messageId));
        await refresh();
      },
      edit: ({ content, attachments, parentId }: ChatMessage) =>
        change({ text: content, files: attachments, edit: startEdit(current, parentId ?? null) }),
    }),
    [sessions, messages, sessionId, isRunning, send, withdraw, show, refresh, change, current],
  );
}

/** Long enough that a short interruption stays silent. */
const BANNER_DELAY_MS = 3_000;

/** Says when the connection is gone, and why the last request was refused. */
function Banner({ chat }: { readonly chat: UseChat }) {
  const isOnline = useOnline();
  const isLost = chat.status === 'rejoining' || chat.connection === 'disconnected';
  const isShown = useDelayed(isLost, BANNER_DELAY_MS);
  const { error, close } = useShownError(chat, isLost);
  // The page says so itself.
  if (!isOnline) return null;
  if (isGone(chat.error)) return <GoneBanner />;
  if (!isShown && !error) return null;
  return (
    <div className="banner" role={error ? 'alert' : 'status'}>
      {error ? <Icon name="alert" /> : <span className="spin" />}
      <span className="grow">{error ? explainError(error) : t('chat.reconnecting')}</span>
      {error && chat.status !== 'failed' ? (
        <IconButton icon="x" label={t('chat.close')} onClick={close} />
      ) : (
        <button type="button" className="btn btn-s" onClick={() => void chat.refresh()}>
          {t('chat.tryNow')}
        </button>
      )}
    </div>
  );
}

const isGone = (error: UseChat['error']) => error?.code === 'session_not_found';

const GoneBanner = () => (
  <div className="banner" role="alert">
    <Icon name="alert" />
    <span className="grow">{t('chat.gone')}</span>
    <a className="btn btn-s" href={toHash({ name: 'welcome' })}>
      {t('chat.newConversation')}
    </a>
  </div>
);

/** The error of the last request, until the user closes it; a message that was not sent shows its own. */
function useShownError({ status, error, messages }: UseChat, isLost: boolean) {
  const [closed, setClosed] = useState<UseChat['error']>();
  const isNetwork = error?.code === 'network_error' || error?.code === 'connection_lost';
  const isLong = useDelayed(isNetwork, BANNER_DELAY_MS);
  const isOfMessage = messages.some(({ sendError }) => sendError && sendError === error);
  const isSaid = isOfMessage || (isNetwork && (isLost || !isLong));
  const isShown = status === 'failed' || (error !== closed && !isSaid);
  return { error: isShown ? error : undefined, close: () => setClosed(error) };
}
