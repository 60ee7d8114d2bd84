import type { Approval, JsonObject, OracleClientError } from '@sibyl/client';
import type { UseApprovals } from '@sibyl/client/react';
import { type ReactNode, useId, useState } from 'react';
import { toTurnForm } from '../../chat/drafts.js';
import { formatDate, formatWhen, nowMs } from '../../i18n/format.js';
import { type TextKey, t } from '../../i18n/i18n.js';
import { usePage } from '../../page/page-context.js';
import { toHash } from '../../page/router.js';
import { keepSession } from '../../page/session-marks.js';
import { Icon } from '../../ui/icon.js';
import { showToast } from '../../ui/toasts.js';
import { Failure, useAction } from '../parts.js';
import { ArgumentForm, useTyped } from './argument-form.js';
import {
  applyEdits,
  findFieldLabel,
  formatArgument,
  humanize,
  type InvalidField,
  listFields,
} from './arguments.js';

interface ApprovalCardProps extends Pick<UseApprovals, 'approve' | 'deny'> {
  readonly approval: Approval;
  /** The title of its conversation, where the card stands outside of it. */
  readonly sessionTitle?: string | undefined;
  /** Called when the decision is stored. */
  readonly onDecided?: () => void;
}

const requiredBy = {
  tool: 'settings.approval.byTool',
  operator: 'settings.approval.byOperator',
  rules: 'settings.approval.byRules',
} as const satisfies Record<Approval['requiredBy'], TextKey>;

/** A tool call that waits: what it would do, exactly, and the user's decision. */
export function ApprovalCard(props: ApprovalCardProps) {
  const { approval, approve, deny, sessionTitle, onDecided } = props;
  const { card } = usePage();
  const titleId = useId();
  const { args, inputSchema, facts } = approval;
  const fields = listFields(args, inputSchema);
  const typed = useTyped(toTurnForm(facts.sessionId, approval.id), fields);
  const { texts, reason, clear } = typed;
  const [isEditing, setEditing] = useState(Object.keys(texts).length > 0);
  const { isBusy, error, run } = useAction();
  const edited = readEdits(() => applyEdits(args, fields, texts));
  const decide = (work: () => Promise<unknown>) =>
    run(async () => {
      // Another tab may be about to delete the conversation.
      keepSession(facts.sessionId);
      // The card disappears then, with its error.
      await work().catch(sayIfClosed);
      clear();
      onDecided?.();
    });
  const cancelEdit = () => {
    typed.undoTexts();
    setEditing(false);
  };
  return (
    <article className="approval" aria-labelledby={titleId}>
      <ApprovalHead approval={approval} titleId={titleId} sessionTitle={sessionTitle} />
      <div className="approval-body">
        <p>
          {t('settings.approval.wants', { name: card.name })}{' '}
          {t(requiredBy[approval.requiredBy], { name: card.name })}
        </p>
        {isEditing ? (
          <ArgumentForm
            fields={fields}
            args={args}
            texts={texts}
            invalid={edited.invalid}
            onChange={typed.changeText}
          />
        ) : (
          <Arguments args={args} edited={edited.args} fields={fields} />
        )}
        {!edited.args && <Delegated approval={approval} />}
        <ReasonField reason={reason} onChange={typed.changeReason} />
        <Details approval={approval} />
        <Failure error={error} findLabel={(path) => findFieldLabel(fields, path)} />
      </div>
      <ApprovalFoot
        edits={edited}
        isEditing={isEditing}
        isBusy={isBusy}
        onApprove={() =>
          void decide(() => approve(approval, edited.args ? { args: edited.args } : {}))
        }
        onEdit={() => (isEditing ? cancelEdit() : setEditing(true))}
        onDeny={() => void decide(() => deny(approval, toGiven(reason)))}
      />
    </article>
  );
}

const toGiven = (reason: string) => (reason.trim() ? { reason: reason.trim() } : {});

function sayIfClosed(error: OracleClientError): void {
  if (error.code !== 'approval_closed') throw error;
  showToast({ text: t('chat.error.decided') });
}

interface ReasonFieldProps {
  readonly reason: string;
  readonly onChange: (reason: string) => void;
}

function ReasonField({ reason, onChange }: ReasonFieldProps) {
  const { card } = usePage();
  return (
    <label className="field">
      <span>
        {t('settings.approval.reason')}{' '}
        <span className="hint">{t('settings.approval.reason.hint', { name: card.name })}</span>
      </span>
      <input
        className="input"
        dir="auto"
        maxLength={400}
        value={reason}
        onChange={({ target }) => onChange(target.value)}
      />
    </label>
  );
}

interface ApprovalFootProps {
  readonly edits: Edits;
  readonly isEditing: boolean;
  readonly isBusy: boolean;
  readonly onApprove: () => void;
  /** Starts or cancels editing. */
  readonly onEdit: () => void;
  readonly onDeny: () => void;
}

function ApprovalFoot(props: ApprovalFootProps) {
  const { edits, isEditing, isBusy, onApprove, onEdit, onDeny } = props;
  return (
    <div className="approval-foot">
      <button
        type="button"
        className="btn btn-primary"
        disabled={isBusy || edits.invalid !== undefined}
        onClick={onApprove}
      >
        <Icon name="check" />
        {edits.args ? t('settings.approval.approveChanged') : t('settings.approval.approve')}
      </button>
      <button type="button" className="btn" disabled={isBusy} onClick={onEdit}>
        {!isEditing && <Icon name="edit" />}
        {isEditing ? t('settings.approval.cancelEdit') : t('chat.edit')}
      </button>
      <button type="button" className="btn btn-danger" disabled={isBusy} onClick={onDeny}>
        {t('settings.approval.deny')}
      </button>
      <span className="hint push">{t('settings.approval.signed')}</span>
    </div>
  );
}

interface Edits {
  readonly args?: JsonObject | undefined;
  /** The label of a field whose text cannot be read. */
  readonly invalid?: string;
}

function readEdits(apply: () => JsonObject | undefined): Edits {
  try {
    return { args: apply() };
  } catch (error) {
    return { invalid: (error as InvalidField).message };
  }
}

interface ApprovalHeadProps {
  readonly approval: Approval;
  readonly titleId: string;
  readonly sessionTitle: string | undefined;
}

function ApprovalHead({ approval, titleId, sessionTitle }: ApprovalHeadProps) {
  const { facts, createdAt, expiresAt } = approval;
  return (
    <div className="approval-head">
      <Icon name="ask" />
      <div className="grow">
        <h2 className="title-2" id={titleId}>
          {humanize(facts.tool)}
        </h2>
        <p className="small quiet sentence">
          {sessionTitle !== undefined && (
            <>
              {t('settings.approval.askedIn')}{' '}
              <a href={toHash({ name: 'conversation', sessionId: facts.sessionId })} dir="auto">
                {sessionTitle}
              </a>
              {' · '}
            </>
          )}
          {formatWhen(createdAt)}
        </p>
      </div>
      <TimeLeft expiresAt={expiresAt} />
    </div>
  );
}

const HOUR_MS = 3_600_000;

export function TimeLeft({ expiresAt }: { readonly expiresAt: string }) {
  const leftMs = Date.parse(expiresAt) - nowMs();
  return (
    <span className={leftMs < HOUR_MS ? 'badge is-warning' : 'badge'}>
      <Icon name="clock" />
      {t('settings.approval.expires', { when: formatWhen(expiresAt) })}
    </span>
  );
}

interface ArgumentsProps {
  readonly args: JsonObject;
  readonly edited: JsonObject | undefined;
  readonly fields: ReturnType<typeof listFields>;
}

/** The arguments as labels and values; what the user has changed as a difference. */
export function Arguments({ args, edited, fields }: ArgumentsProps) {
  const rows = fields.filter(({ name }) => name in args || (edited && name in edited));
  if (rows.length === 0) return <p className="quiet">{t('settings.approval.noArguments')}</p>;
  return (
    <dl className="args">
      {rows.map(({ name, label }) => (
        <div key={name}>
          <dt>{label}</dt>
          <dd dir="auto" className="arg-value">
            {edited && formatArgument(edited[name]) !== formatArgument(args[name]) ? (
              <Change before={formatArgument(args[name])} after={formatArgument(edited[name])} />
            ) : (
              formatArgument(args[name])
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Change({ before, after }: { readonly before: string; readonly after: string }): ReactNode {
  return (
    <>
      <del>{before}</del> <ins>{after}</ins>{' '}
      <span className="badge is-accent">{t('settings.approval.changed')}</span>
    </>
  );
}

/** What the approval also permits; an edited call is approved without. */
function Delegated({ approval: { delegates } }: { readonly approval: Approval }) {
  const { card } = usePage();
  if (!delegates) return null;
  const when = formatDate(new Date(nowMs() + delegates.expiresInSeconds * 1000));
  return <p>{t('settings.approval.delegates', { name: card.name, when })}</p>;
}

function Details({ approval }: { readonly approval: Approval }) {
  const { facts, delegates } = approval;
  return (
    <details className="fold">
      <summary>
        <Icon name="right" flip className="i-chev" />
        {t('settings.technical')}
      </summary>
      <div>
        <dl className="kv">
          <dt>{t('settings.approval.tool')}</dt>
          <dd>
            <code dir="ltr">{facts.tool}</code> ({facts.plugin})
          </dd>
          <dt>{t('settings.approval.fingerprint')}</dt>
          <dd>
            <code dir="ltr" className="break">
              sha256:{facts.argsHash}
            </code>
          </dd>
          {delegates && (
            <>
              <dt>{t('settings.approval.permitted')}</dt>
              <dd>
                <code dir="ltr" className="break">
                  {delegates.can} {delegates.with}
                </code>
                <pre dir="auto">{formatArgument(delegates.terms)}</pre>
              </dd>
            </>
          )}
        </dl>
      </div>
    </details>
  );
}
