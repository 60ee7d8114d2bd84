import type { ChatMessage, Feedback } from '@sibyl/client';
import type { FormEvent } from 'react';
import { explainError } from '../i18n/explain-error.js';
import { formatCost, formatDateTime } from '../i18n/format.js';
import { t } from '../i18n/i18n.js';
import { isComposing } from '../page/commands.js';
import { useMessageActions } from '../page/page-context.js';
import { showToast } from '../ui/toasts.js';
import { useFormDraft } from './drafts.js';

/** When an answer was written, by which model, and what it used, as far as it is known. */
export function AnswerFacts({ message }: { readonly message: ChatMessage }) {
  const { createdAt, model, usage } = message;
  const facts = [
    model,
    usage &&
      t('chat.facts.tokens', {
        count: usage.inputTokens + usage.outputTokens,
        in: usage.inputTokens,
        out: usage.outputTokens,
      }),
    usage?.cost !== undefined && t('chat.facts.cost', { cost: formatCost(usage.cost) }),
  ].filter(Boolean);
  return (
    <span className="msg-meta num">
      <time dateTime={createdAt}>{formatDateTime(createdAt)}</time>
      {facts.map((fact) => ` · ${fact}`)}
    </span>
  );
}

/** The form opens below the answer, where it may not be in view. */
const showForm = (form: HTMLFormElement | null) => form?.scrollIntoView({ block: 'nearest' });

/** The server's limit. */
const MAX_COMMENT = 2000;

interface FeedbackFormProps {
  readonly message: ChatMessage;
  readonly feedback: Feedback;
  readonly onClose: () => void;
}

/** Adds a comment to a rating, or withdraws both. */
export function FeedbackForm({ message, feedback, onClose }: FeedbackFormProps) {
  const { rate } = useMessageActions();
  const { rating, comment: stored = '' } = feedback;
  const { values, isTyped, change, clear } = useFormDraft(`feedback:${message.messageId}`, {
    comment: stored,
  });
  const { comment } = values;
  const close = () => {
    clear();
    onClose();
  };
  const save = async (changed: Feedback | undefined) => {
    try {
      await rate(message, changed);
      if (changed) showToast({ text: t('chat.feedback.stored') });
      close();
    } catch (error) {
      showToast({ text: explainError(error as Error) });
    }
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const text = comment.trim();
    void save(text ? { rating, comment: text } : { rating });
  };
  return (
    <form ref={showForm} className="card card-pad stack stack-2" onSubmit={submit}>
      <label className="field">
        <span>{t(rating === 'up' ? 'chat.feedback.up' : 'chat.feedback.down')}</span>
        <textarea
          // biome-ignore lint/a11y/noAutofocus: the user just rated the answer.
          autoFocus
          className="input"
          dir="auto"
          rows={2}
          maxLength={MAX_COMMENT}
          placeholder={t('chat.feedback.hint')}
          value={comment}
          onChange={({ target }) => change({ comment: target.value })}
          onKeyDown={(event) =>
            event.key === 'Escape' && !isComposing(event) && !isTyped && close()
          }
        />
      </label>
      <div className="actions">
        <button type="submit" className="btn btn-primary" disabled={comment.trim() === stored}>
          {t('chat.feedback.send')}
        </button>
        <button type="button" className="btn btn-quiet" onClick={close}>
          {t('chat.close')}
        </button>
        <button type="button" className="btn btn-quiet push" onClick={() => void save(undefined)}>
          {t('chat.feedback.withdraw')}
        </button>
      </div>
    </form>
  );
}
