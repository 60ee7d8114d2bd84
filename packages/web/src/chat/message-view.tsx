import type { AnswerPart, ChatMessage } from '@sibyl/client';
import { lazy, memo, type ReactNode, Suspense, useRef, useState } from 'react';
import { describeFailure, explainError } from '../i18n/explain-error.js';
import { type TextKey, t, useLanguage } from '../i18n/i18n.js';
import { useMessageActions } from '../page/page-context.js';
import { CopyButton } from '../ui/copy-button.js';
import { ErrorBoundary, LoadFailure } from '../ui/error-boundary.js';
import { Icon, IconButton } from '../ui/icon.js';
import { Menu } from '../ui/menu.js';
import { showToast } from '../ui/toasts.js';
import { AnswerParts } from './answer-parts.js';
import { AttachmentList } from './attachments.js';

/** What an answer waits for: a decision of the user, or an answer that this page cannot give. */
export type Pause = 'decision' | 'elsewhere';

interface MessageViewProps {
  readonly message: ChatMessage;
  /** The last message shows its actions without a pointer. */
  readonly isLast: boolean;
  readonly pause: Pause | undefined;
}

/** One message; falls back to plain text if the model sent something that cannot be rendered. */
export const MessageView = memo(({ message, isLast, pause }: MessageViewProps) => {
  useLanguage();
  return (
    <ErrorBoundary fallback={<PlainMessage message={message} />}>
      {message.type === 'human' ? (
        <UserMessage message={message} />
      ) : (
        <Answer message={message} isLast={isLast} pause={pause} />
      )}
    </ErrorBoundary>
  );
});

function PlainMessage({ message: { content } }: { readonly message: ChatMessage }) {
  return (
    <article className="msg" aria-label={t('chat.message')}>
      <p className="prose text" dir="auto">
        {content}
      </p>
      <p className="small quiet">{t('chat.notDisplayed')}</p>
    </article>
  );
}

function UserMessage({ message }: { readonly message: ChatMessage }) {
  const { edit } = useMessageActions();
  const { content, attachments, messageId } = message;
  return (
    <article
      className="msg msg-user"
      aria-label={t('chat.you')}
      data-request={message.requestId}
      data-message={messageId}
    >
      <AttachmentList files={attachments} />
      {content && (
        <div className="bubble" dir="auto">
          {content}
        </div>
      )}
      <div className="msg-bar">
        <Branches message={message} kind="question" />
        <CopyButton text={content} label={t('chat.copy')} />
        {messageId && (
          <IconButton icon="edit" label={t('chat.edit')} onClick={() => edit(message)} />
        )}
      </div>
    </article>
  );
}

function Answer({ message, isLast, pause }: MessageViewProps) {
  const { content, parts, warnings, status } = message;
  const isRunning = status === 'running' || status === 'waiting';
  const isLong = !isRunning && content.length > LONG_ANSWER;
  const [isCollapsed, setCollapsed] = useState(false);
  return (
    <article
      className={isCollapsed ? 'msg is-collapsed' : 'msg'}
      aria-label={t('chat.answer')}
      aria-busy={isRunning}
      data-last={isLast || undefined}
      data-message={message.messageId}
    >
      <AnswerParts parts={parts} isRunning={isRunning} isPaused={pause !== undefined} />
      {isRunning && isSilent(parts) && (
        <p className="line small quiet" role="status">
          <span className="spin" />
          {t('chat.thinking')}
        </p>
      )}
      {warnings.map(({ code, message: text, timestamp }) => (
        <p key={`${code} ${timestamp}`} className="notice is-warning">
          <Icon name="alert" />
          <span className="grow">{text}</span>
        </p>
      ))}
      <AnswerEnd message={message} isLast={isLast} pause={pause} />
      {!isRunning && !pause && (
        <AnswerBar message={message}>
          {isLong && (
            <button
              type="button"
              className="btn btn-quiet btn-s"
              aria-expanded={!isCollapsed}
              onClick={() => setCollapsed(!isCollapsed)}
            >
              {t(isCollapsed ? 'chat.showAll' : 'chat.showLess')}
            </button>
          )}
        </AnswerBar>
      )}
    </article>
  );
}

const loadDetails = () => import('./answer-details.js');
const AnswerFacts = lazy(async () => ({ default: (await loadDetails()).AnswerFacts }));
const FeedbackForm = lazy(async () => ({ default: (await loadDetails()).FeedbackForm }));

/** What is loaded when the user asks for it; a failure leaves the answer as it is. */
const OnDemand = ({ children }: { readonly children: ReactNode }) => (
  <ErrorBoundary fallback={<LoadFailure />}>
    <Suspense>{children}</Suspense>
  </ErrorBoundary>
);

interface AnswerBarProps {
  readonly message: ChatMessage;
  /** More buttons. */
  readonly children: ReactNode;
}

/** What the user can do with an answer, and what is known about it on demand. */
function AnswerBar({ message, children }: AnswerBarProps) {
  const { fork } = useMessageActions();
  const { content, messageId } = message;
  const [isFactsShown, setFactsShown] = useState(false);
  const [isRating, setRating] = useState(false);
  const bar = useRef<HTMLDivElement>(null);
  const endRating = () => {
    setRating(false);
    bar.current?.querySelector<HTMLElement>('[aria-pressed="true"]')?.focus();
  };
  return (
    <>
      <div ref={bar} className="msg-bar">
        <Branches message={message} kind="answer" />
        {content && <CopyButton text={content} label={t('chat.copyAnswer')} />}
        <Regenerate message={message} />
        {messageId && content && <Thumbs message={message} onRate={() => setRating(true)} />}
        {children}
        {messageId && (
          <Menu
            label={t('chat.answer.more')}
            groups={[
              [
                { label: t('chat.facts'), icon: 'info', run: () => setFactsShown(!isFactsShown) },
                { label: t('chat.fork'), icon: 'chat', run: () => fork(message) },
              ],
            ]}
          >
            <Icon name="more" />
          </Menu>
        )}
        <OnDemand>{isFactsShown && <AnswerFacts message={message} />}</OnDemand>
      </div>
      <OnDemand>
        {isRating && message.feedback && (
          <FeedbackForm message={message} feedback={message.feedback} onClose={endRating} />
        )}
      </OnDemand>
    </>
  );
}

/** Rates an answer at once; then, or with another click, the user can add a comment or withdraw it. */
function Thumbs({ message, onRate }: { readonly message: ChatMessage; onRate(): void }) {
  const { rate } = useMessageActions();
  const { feedback } = message;
  const choose = async (rating: 'up' | 'down') => {
    try {
      if (feedback?.rating !== rating) await rate(message, { ...feedback, rating });
      onRate();
    } catch (error) {
      showToast({ text: explainError(error as Error) });
    }
  };
  return (['up', 'down'] as const).map((rating) => (
    <IconButton
      key={rating}
      icon={rating}
      label={t(rating === 'up' ? 'chat.good' : 'chat.bad')}
      aria-pressed={feedback?.rating === rating}
      onClick={() => void choose(rating)}
    />
  ));
}

/** Characters; longer answers can be collapsed. */
const LONG_ANSWER = 3000;

/** Whether nothing shows that the answer is being written. */
function isSilent(parts: readonly AnswerPart[]): boolean {
  const last = parts.at(-1);
  return last?.type !== 'text' && !(last?.type === 'call' && last.call.status === 'running');
}

function Regenerate({ message }: { readonly message: ChatMessage }) {
  const { regenerate } = useMessageActions();
  // A failed answer has Retry, which does the same.
  if (!message.messageId || hasFailed(message)) return null;
  return (
    <IconButton icon="redo" label={t('chat.regenerate')} onClick={() => regenerate(message)} />
  );
}

const hasFailed = ({ error, status }: ChatMessage) => Boolean(error) || status === 'failed';

const endings = {
  decision: 'chat.paused',
  elsewhere: 'chat.paused.elsewhere',
  stopped: 'chat.stopped',
} as const satisfies Record<Pause | 'stopped', TextKey>;

/** Why an answer is not complete, and what the user can do. */
function AnswerEnd({ message, isLast, pause }: MessageViewProps) {
  const { regenerate } = useMessageActions();
  const { status, content } = message;
  if (hasFailed(message)) {
    return (
      <div className="notice is-fault" role={isLast ? 'alert' : undefined}>
        <Icon name="alert" />
        <div className="grow">
          <b>{t(content ? 'chat.failed.early' : 'chat.failed')}</b>
          <p className="quiet">{describeFailure(message)}</p>
          {message.messageId && (
            <div className="actions">
              <button
                type="button"
                className="btn btn-primary btn-s"
                onClick={() => regenerate(message)}
              >
                <Icon name="redo" />
                {t('chat.retry')}
              </button>
            </div>
          )}
        </div>
      </div>
    );
  }
  if (status !== 'incomplete') return null;
  return (
    <p className="line small quiet">
      <Icon name={pause ? 'clock' : 'stop'} />
      {t(endings[pause ?? 'stopped'])}
    </p>
  );
}

interface BranchesProps {
  readonly message: ChatMessage;
  readonly kind: 'question' | 'answer';
}

/** Switches between the versions of a message. */
function Branches({ message: { messageId, siblings = [] }, kind }: BranchesProps) {
  const { show } = useMessageActions();
  const index = messageId ? siblings.indexOf(messageId) : -1;
  if (index < 0 || siblings.length < 2) return null;
  const previous = siblings[index - 1];
  const next = siblings[index + 1];
  return (
    <span className="branch">
      <IconButton
        icon="left"
        flip
        label={t(kind === 'answer' ? 'chat.previousAnswer' : 'chat.previousVersion')}
        disabled={!previous}
        onClick={() => previous && show(previous)}
      />
      <span className="num">{`${index + 1}/${siblings.length}`}</span>
      <IconButton
        icon="right"
        flip
        label={t(kind === 'answer' ? 'chat.nextAnswer' : 'chat.nextVersion')}
        disabled={!next}
        onClick={() => next && show(next)}
      />
    </span>
  );
}
