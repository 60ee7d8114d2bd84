import type { ChatMessage } from '@sibyl/client';
import type { UseChat } from '@sibyl/client/react';
import { useEffect, useMemo, useState, useSyncExternalStore } from 'react';
import { t } from '../i18n/i18n.js';
import { usePage } from '../page/page-context.js';
import { go, toHash } from '../page/router.js';
import { Icon } from '../ui/icon.js';
import { AttachmentList } from './attachments.js';
import { addToNew, focusBox } from './drafts.js';
import type { SendFailure, UnsentMessage } from './outbox.js';

interface UnsentViewProps {
  readonly unsent: UnsentMessage;
  /** Puts the text back into the box; without it, the message is only discarded. */
  readonly onEdit?: (unsent: UnsentMessage) => void;
  /** Also removes what the conversation shows of it. */
  readonly onDiscard?: (requestId: string) => void;
}

/** A message that the server has not accepted: why, and what the user can do. */
export function UnsentView({ unsent, onEdit, onDiscard }: UnsentViewProps) {
  const { outbox } = usePage();
  const { requestId, message } = unsent;
  const isOnline = useOnline();
  const failure = unsent.failure ?? (isOnline ? undefined : OFFLINE);
  const isLate = useIsLate(unsent.createdAt);
  const discard = () => {
    outbox.remove(requestId);
    onDiscard?.(requestId);
  };
  const edit = () => {
    discard();
    onEdit?.(unsent);
    focusBox();
  };
  const isGone = failure?.kind === 'gone';
  return (
    <article className="msg msg-user" aria-label={t('chat.you')} data-request={requestId}>
      <AttachmentList files={message.attachments ?? []} />
      <div className={failure || isLate ? 'bubble is-unsent' : 'bubble'} dir="auto">
        {message.message}
      </div>
      {failure ? (
        <FailureLine failure={failure} />
      ) : (
        isLate && <p className="line small quiet">{t('chat.sending')}</p>
      )}
      {failure && (
        <div className="msg-bar">
          <AgainButton unsent={unsent} isGone={isGone} onMove={discard} />
          {failure.kind === 'credit' && (
            <a className="btn btn-quiet btn-s" href={toHash({ name: 'settings', screen: 'usage' })}>
              <Icon name="chart" />
              {t('chat.nav.usage')}
            </a>
          )}
          {onEdit && !isGone && (
            <button type="button" className="btn btn-quiet btn-s" onClick={edit}>
              <Icon name="edit" />
              {t('chat.edit')}
            </button>
          )}
          <button type="button" className="btn btn-quiet btn-s" onClick={discard}>
            <Icon name="trash" />
            {t('chat.discard')}
          </button>
        </div>
      )}
    </article>
  );
}

interface AgainButtonProps {
  readonly unsent: UnsentMessage;
  readonly isGone: boolean;
  readonly onMove: () => void;
}

/** Sends the message again; if its conversation was deleted, moves it into the box of a new one. */
function AgainButton({ unsent: { requestId, message }, isGone, onMove }: AgainButtonProps) {
  const { outbox, signer } = usePage();
  const move = () => {
    addToNew(signer.did, message);
    onMove();
    go({ name: 'welcome' });
  };
  return (
    <button
      type="button"
      className="btn btn-quiet btn-s"
      onClick={isGone ? move : () => outbox.retry(requestId)}
    >
      <Icon name={isGone ? 'plus' : 'redo'} />
      {t(isGone ? 'chat.newConversation' : 'chat.retry')}
    </button>
  );
}

const OFFLINE: SendFailure = { kind: 'offline', message: '' };

const LATE_MS = 3_000;

/** Whether the message has been on its way for so long that the user should know. */
function useIsLate(createdAt: string): boolean {
  const [isLate, setLate] = useState(false);
  useEffect(() => {
    const age = Date.now() - Date.parse(createdAt);
    const timer = setTimeout(() => setLate(true), Math.max(0, LATE_MS - age));
    return () => clearTimeout(timer);
  }, [createdAt]);
  return isLate;
}

function FailureLine({ failure }: { readonly failure: SendFailure }) {
  const seconds = useCountdown(failure.retryAt);
  const [first] = useState(seconds);
  const { kind } = failure;
  const isWaiting = kind === 'offline' || kind === 'rate-limit';
  const isWarning = isWaiting || kind === 'credit';
  return (
    <p className={isWarning ? 'line small is-warning' : 'line small is-fault'} role="status">
      <Icon name={isWaiting ? 'clock' : kind === 'credit' ? 'coin' : 'alert'} />
      <span aria-hidden>{describe(failure, seconds)}</span>
      {/* Read out once, not every second. */}
      <span className="vh">{describe(failure, first)}</span>
    </p>
  );
}

function describe({ kind, message }: SendFailure, seconds: number): string {
  switch (kind) {
    case 'offline':
      return t('chat.unsent.offline');
    case 'unreachable':
      return t('chat.unsent.unreachable', { count: seconds });
    case 'rate-limit':
      return t('chat.unsent.rateLimit', { count: seconds });
    case 'credit':
      return t('chat.unsent.credit');
    case 'gone':
      return t('chat.unsent.rejected', { reason: t('chat.gone').replace(/\.$/, '') });
    case 'rejected':
      return t('chat.unsent.rejected', { reason: message.replace(/\.$/, '') });
  }
}

/** Seconds until a time, counting down. */
function useCountdown(until: number | undefined): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (until === undefined) return;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [until]);
  return until === undefined ? 0 : Math.max(1, Math.ceil((until - now) / 1000));
}

const subscribe = (listener: () => void) => {
  window.addEventListener('online', listener);
  window.addEventListener('offline', listener);
  return () => {
    window.removeEventListener('online', listener);
    window.removeEventListener('offline', listener);
  };
};

/** Whether the device has a network. */
export const useOnline = (): boolean => useSyncExternalStore(subscribe, () => navigator.onLine);

/** True once a condition has been true for a while. */
export function useDelayed(isTrue: boolean, ms: number): boolean {
  const [isLong, setLong] = useState(false);
  useEffect(() => {
    if (!isTrue) return setLong(false);
    const timer = setTimeout(() => setLong(true), ms);
    return () => clearTimeout(timer);
  }, [isTrue, ms]);
  return isTrue && isLong;
}

/** The messages of a conversation that the server has not accepted; without one, of those to be started. */
export function useUnsent(sessionId: string | undefined): readonly UnsentMessage[] {
  const { outbox } = usePage();
  const list = useSyncExternalStore(outbox.subscribe, outbox.getList);
  return useMemo(
    () =>
      list.filter((each) =>
        each.sessionId === sessionId
          ? // A conversation that another tab starts opens there.
            sessionId !== undefined || each.tab === outbox.tab
          : // Until its conversation is shown, a message stays where it was.
            sessionId === undefined && each.sessionId === outbox.startedSessionId,
      ),
    [list, sessionId, outbox],
  );
}

const isAccepted = ({ type, status }: ChatMessage) =>
  type === 'human' && status !== 'sending' && status !== 'failed';

/** Sends the messages of the open conversation through its chat; returns those not accepted yet. */
export function useDelivery(sessionId: string, chat: UseChat): readonly UnsentMessage[] {
  const { outbox } = usePage();
  const unsent = useUnsent(sessionId);
  const { messages, status, error, send } = chat;
  const isLoaded = status !== 'loading' && status !== 'failed';
  useEffect(() => {
    outbox.openSession(sessionId);
    return () => outbox.openSession(undefined);
  }, [outbox, sessionId]);
  useEffect(() => {
    for (const { requestId } of unsent) {
      const question = messages.find((each) => each.requestId === requestId);
      if (question && isAccepted(question)) outbox.remove(requestId);
      else if (question?.sendError && outbox.isSending(requestId))
        outbox.fail(requestId, question.sendError);
    }
  }, [outbox, unsent, messages]);
  useEffect(() => {
    // The history says whether a message was accepted before a reload.
    const next = isLoaded ? outbox.takeNext(sessionId) : undefined;
    if (next) void send({ ...next.message, requestId: next.requestId });
  }, [outbox, sessionId, isLoaded, unsent, send]);
  useEffect(() => {
    if (status !== 'failed' || error?.code !== 'session_not_found') return;
    for (const { requestId, failure } of unsent) if (!failure) outbox.fail(requestId, error);
  }, [outbox, unsent, status, error]);
  return useMemo(() => {
    const accepted = new Set(messages.filter(isAccepted).map(({ requestId }) => requestId));
    return unsent.filter(({ requestId }) => !accepted.has(requestId));
  }, [unsent, messages]);
}
