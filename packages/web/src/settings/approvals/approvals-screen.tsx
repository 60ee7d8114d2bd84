import type { Approval, Session } from '@sibyl/client';
import { useApprovals, useOracle, useResource } from '@sibyl/client/react';
import { useCallback, useEffect } from 'react';
import { t } from '../../i18n/i18n.js';
import { usePage } from '../../page/page-context.js';
import { Empty, Failure, PageHead, Section } from '../parts.js';
import { ApprovalCard } from './approval-card.js';
import { Receipt } from './receipt.js';

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

function useSessionTitles(): ReadonlyMap<string, string> {
  const { sessions } = useOracle();
  const load = useCallback(
    async (signal: AbortSignal): Promise<readonly Session[]> =>
      (await sessions.list({ limit: 100, signal })).sessions,
    [sessions],
  );
  const { value = [] } = useResource(load);
  return new Map(value.map(({ sessionId, title }) => [sessionId, title]));
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
