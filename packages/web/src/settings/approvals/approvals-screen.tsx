import { type Approval, checkReceipt, type Session } from '@sibyl/client';
import { useApprovals, useOracle, useResource } from '@sibyl/client/react';
import { useCallback, useEffect, useState } from 'react';
import { formatDateTime } from '../../i18n/format.js';
import { type TextKey, t } from '../../i18n/i18n.js';
import { usePage } from '../../page/page-context.js';
import { nameSession } from '../../page/session-marks.js';
import { Icon } from '../../ui/icon.js';
import { Empty, Failure, PageHead, Section, saveFile, useAction } from '../parts.js';
import { ApprovalCard, Arguments } from './approval-card.js';
import { humanize, listFields } from './arguments.js';

const REFRESH_MS = 10_000;
/** How many of the newest entries are searched for decisions. */
const ENTRIES = 100;
const MAX_DECIDED = 10;

/** The actions that wait for the user, and those that were decided. */
export function ApprovalsScreen() {
  const { card } = usePage();
  const { approvals, isLoading, error, refresh, ...decisions } = useApprovals();
  const sessions = useSessionTitles();
  const decided = useDecided(approvals.length);
  useEffect(() => {
    const timer = setInterval(() => void refresh(), REFRESH_MS);
    return () => clearInterval(timer);
  }, [refresh]);
  const count = approvals.length;
  return (
    <>
      <PageHead
        title={count > 0 ? t('settings.approvals.title', { count }) : t('settings.approvals.none')}
        lede={t(count > 0 ? 'settings.approvals.lede' : 'settings.approvals.none.lede', {
          name: card.name,
        })}
      />
      <Failure error={error} onRetry={refresh} />
      {approvals.map((approval) => (
        <ApprovalCard
          key={approval.id}
          approval={approval}
          sessionTitle={sessions.get(approval.facts.sessionId) ?? t('settings.conversation')}
          {...decisions}
        />
      ))}
      <Section title={t('settings.approvals.decided')}>
        {decided.map((approval) => (
          <Receipt key={approval.id} approval={approval} />
        ))}
        {decided.length === 0 && !isLoading && <Empty title={t('settings.approvals.noDecided')} />}
      </Section>
    </>
  );
}

/** The titles of the newest conversations. */
export function useSessionTitles(): ReadonlyMap<string, string> {
  const { sessions } = useOracle();
  const load = useCallback(
    async (signal: AbortSignal): Promise<readonly Session[]> =>
      (await sessions.list({ limit: 100, signal })).sessions,
    [sessions],
  );
  const { value = [] } = useResource(load);
  return new Map(value.map((session) => [session.sessionId, nameSession(session)]));
}

/** The newest decisions; loaded again when the number of open ones changes. */
function useDecided(open: number): readonly Approval[] {
  const client = useOracle();
  const load = useCallback(
    async (signal: AbortSignal) => {
      const { entries } = await client.activity({ limit: ENTRIES, signal });
      const ids = entries.flatMap(({ kind, approvalId }) =>
        kind === 'approval_decided' && approvalId ? [approvalId] : [],
      );
      const newest = [...new Set(ids)].slice(0, MAX_DECIDED);
      return Promise.all(newest.map((id) => client.approvals.get(id, { signal })));
    },
    [client],
  );
  const { value = [], refresh } = useResource(load);
  useEffect(() => {
    void refresh();
  }, [open, refresh]);
  return value;
}

const titles = {
  pending: 'settings.receipt.pending',
  approved: 'settings.receipt.approved',
  denied: 'settings.receipt.denied',
  expired: 'settings.receipt.expired',
  cancelled: 'settings.receipt.cancelled',
} as const satisfies Record<Approval['status'], TextKey>;

/** A decision, and its proof. */
export function Receipt({ approval }: { readonly approval: Approval }) {
  const { facts, status, args, inputSchema, approvedArgs, decidedAt, reason, isSigned } = approval;
  return (
    <article className="approval receipt">
      <div className="approval-head">
        <Icon name={status === 'approved' ? 'check' : 'x'} />
        <div className="grow">
          <h3 className="title-2">{t(titles[status], { action: humanize(facts.tool) })}</h3>
          <p className="small quiet">
            {decidedAt && formatDateTime(decidedAt)}
            {isSigned && ` · ${t('settings.receipt.signed')}`}
          </p>
        </div>
      </div>
      <div className="approval-body">
        <Arguments args={args} edited={approvedArgs} fields={listFields(args, inputSchema)} />
        {reason && (
          <p dir="auto">
            {t('settings.receipt.reason')} {reason}
          </p>
        )}
        {isSigned && <ReceiptActions id={approval.id} />}
      </div>
    </article>
  );
}

/** Downloads the receipt, and checks it here. */
export function ReceiptActions({ id }: { readonly id: string }) {
  const { approvals } = useOracle();
  const [isValid, setValid] = useState<boolean>();
  const { isBusy, error, run } = useAction();
  const download = () =>
    run(async () => {
      const text = await approvals.receipt(id);
      // Byte for byte: the signature covers the text.
      saveFile(`receipt-${id.slice(0, 12)}.json`, text, 'application/json');
    });
  const verify = () =>
    run(async () => setValid(await checkReceipt(await approvals.receipt(id), id)));
  return (
    <>
      <div className="actions">
        <button type="button" className="btn btn-s" disabled={isBusy} onClick={download}>
          <Icon name="save" />
          {t('settings.receipt.download')}
        </button>
        <button type="button" className="btn btn-quiet btn-s" disabled={isBusy} onClick={verify}>
          {t('settings.receipt.verify')}
        </button>
        <span role="status">
          {isValid !== undefined && (
            <span className={isValid ? 'badge is-good' : 'badge is-fault'}>
              <Icon name={isValid ? 'check' : 'alert'} />
              {t(isValid ? 'settings.receipt.valid' : 'settings.receipt.invalid')}
            </span>
          )}
        </span>
      </div>
      {isValid && <p className="hint">{t('settings.receipt.elsewhere')}</p>}
      <Failure error={error} />
    </>
  );
}
