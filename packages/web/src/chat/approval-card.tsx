import type { Approval, JsonObject } from '@sibyl/client';
import type { UseApprovals } from '@sibyl/client/react';
import { useId, useState } from 'react';
import { t } from '../i18n/i18n.js';
import { Icon } from '../ui/icon.js';
import { toWords } from './answer-parts.js';
import { ArgumentFields, ArgumentList } from './approval-arguments.js';

interface ApprovalCardProps extends Pick<UseApprovals, 'approve' | 'deny'> {
  readonly approval: Approval;
  /** Called when the decision is stored. */
  readonly onDecided?: () => void;
}

type Mode = 'view' | 'edit' | 'deny';

/** A tool call that waits: what it does, its arguments, and the decision, signed with the user's key. */
export function ApprovalCard({ approval, approve, deny, onDecided }: ApprovalCardProps) {
  const titleId = useId();
  const { facts, args, inputSchema } = approval;
  const [mode, setMode] = useState<Mode>('view');
  const [edited, setEdited] = useState<JsonObject>();
  const [reason, setReason] = useState('');
  const [state, setState] = useState<{ readonly isSending?: boolean; readonly error?: string }>({});
  const decide = async (work: () => Promise<unknown>) => {
    setState({ isSending: true });
    try {
      await work();
      onDecided?.();
    } catch (error) {
      setState({ error: (error as Error).message });
    }
  };
  return (
    <article className="approval" aria-labelledby={titleId}>
      <div className="approval-head">
        <Icon name="ask" />
        <div className="grow">
          <h2 className="title-2" id={titleId}>
            {t('chat.approval.title', { tool: toWords(facts.tool) })}
          </h2>
          <p className="small quiet">{t(reasons[approval.requiredBy])}</p>
        </div>
        <Expiry expiresAt={approval.expiresAt} />
      </div>
      <div className="approval-body">
        {mode === 'edit' ? (
          <ArgumentFields schema={inputSchema} args={edited ?? args} onChange={setEdited} />
        ) : (
          <ArgumentList args={args} edited={edited} />
        )}
        {mode === 'deny' && <ReasonField reason={reason} onChange={setReason} />}
        <Details approval={approval} />
        {state.error && (
          <p className="is-fault" role="alert">
            {state.error}
          </p>
        )}
      </div>
      <Foot
        mode={mode}
        isEdited={edited !== undefined}
        isSending={state.isSending ?? false}
        onMode={setMode}
        onApprove={() => void decide(() => approve(approval, edited ? { args: edited } : {}))}
        onReset={() => {
          setEdited(undefined);
          setMode('view');
        }}
        onDeny={() => void decide(() => deny(approval, reason ? { reason } : {}))}
      />
    </article>
  );
}

const reasons = {
  tool: 'chat.approval.byTool',
  operator: 'chat.approval.byOperator',
  rules: 'chat.approval.byRules',
} as const;

function Expiry({ expiresAt }: { readonly expiresAt: string }) {
  const minutes = Math.max(0, Math.round((Date.parse(expiresAt) - Date.now()) / 60_000));
  return (
    <span className={minutes < 60 ? 'badge is-warning' : 'badge'}>
      <Icon name="clock" />
      {describeTimeLeft(minutes)}
    </span>
  );
}

function describeTimeLeft(minutes: number): string {
  if (minutes < 60) return t('chat.approval.minutes', { count: minutes });
  const hours = Math.round(minutes / 60);
  if (hours < 48) return t('chat.approval.hours', { count: hours });
  return t('chat.approval.days', { count: Math.floor(hours / 24) });
}

interface ReasonFieldProps {
  readonly reason: string;
  readonly onChange: (reason: string) => void;
}

function ReasonField({ reason, onChange }: ReasonFieldProps) {
  return (
    <label className="field">
      <span>{t('chat.approval.reason')}</span>
      <input
        // biome-ignore lint/a11y/noAutofocus: the user just chose Deny.
        autoFocus
        className="input"
        dir="auto"
        maxLength={400}
        placeholder={t('chat.approval.reason.hint')}
        value={reason}
        onChange={({ target }) => onChange(target.value)}
      />
    </label>
  );
}

function Details({ approval: { facts, id } }: { readonly approval: Approval }) {
  return (
    <details className="fold">
      <summary>
        <Icon name="right" flip className="i-chev" />
        {t('chat.technical')}
      </summary>
      <div>
        <dl className="kv">
          <dt>{t('chat.tool.name')}</dt>
          <dd>
            <code>{facts.tool}</code>
          </dd>
          <dt>{t('chat.plugin')}</dt>
          <dd>{facts.plugin}</dd>
          <dt>{t('chat.fingerprint')}</dt>
          <dd>
            <code>{id}</code>
          </dd>
        </dl>
      </div>
    </details>
  );
}

interface FootProps {
  readonly mode: Mode;
  readonly isEdited: boolean;
  readonly isSending: boolean;
  readonly onMode: (mode: Mode) => void;
  readonly onApprove: () => void;
  readonly onReset: () => void;
  readonly onDeny: () => void;
}

function Foot({ mode, isEdited, isSending, onMode, onApprove, onReset, onDeny }: FootProps) {
  if (mode === 'deny') {
    return (
      <div className="approval-foot">
        <button type="button" className="btn btn-danger" disabled={isSending} onClick={onDeny}>
          {t('chat.approval.deny')}
        </button>
        <button type="button" className="btn" onClick={() => onMode('view')}>
          {t('chat.cancel')}
        </button>
        <span className="hint push">{t('chat.approval.signed')}</span>
      </div>
    );
  }
  return (
    <div className="approval-foot">
      <button type="button" className="btn btn-primary" disabled={isSending} onClick={onApprove}>
        <Icon name="check" />
        {t(isEdited ? 'chat.approval.approveEdited' : 'chat.approval.approve')}
      </button>
      {mode === 'edit' ? (
        <button type="button" className="btn" onClick={onReset}>
          {t('chat.approval.cancelEdit')}
        </button>
      ) : (
        <button type="button" className="btn" onClick={() => onMode('edit')}>
          <Icon name="edit" />
          {t('chat.edit')}
        </button>
      )}
      <button type="button" className="btn btn-danger" onClick={() => onMode('deny')}>
        {t('chat.approval.denyMore')}
      </button>
      <span className="hint push">{t('chat.approval.signed')}</span>
    </div>
  );
}
