import type { ActivityEntry } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import { useCallback, useEffect, useState } from 'react';
import { formatDay, formatTime } from '../i18n/format.js';
import { type TextKey, t } from '../i18n/i18n.js';
import { usePage } from '../page/page-context.js';
import { toHash } from '../page/router.js';
import { Icon, type IconName } from '../ui/icon.js';
import { ReceiptActions, useSessionTitles } from './approvals/approvals-screen.js';
import { humanize } from './approvals/arguments.js';
import { Empty, Failure, PageHead, useAction } from './parts.js';

const PAGE_SIZE = 50;
const kinds = {
  all: 'settings.activity.all',
  tool_call: 'settings.actions',
  approval_decided: 'settings.activity.decisions',
  rules_changed: 'chat.nav.rules',
} as const satisfies Record<string, TextKey>;
type Filter = keyof typeof kinds;

/** What happened on behalf of the user, newest first. */
export function ActivityScreen() {
  const { card } = usePage();
  const { entries, hasMore, isBusy, error, loadMore } = useActivity();
  const [filter, setFilter] = useState<Filter>('all');
  const shown = entries.filter(({ kind }) => filter === 'all' || kind === filter);
  const titles = useSessionTitles();
  const days = groupByDay(shown);
  return (
    <>
      <PageHead
        title={t('chat.nav.activity')}
        lede={t('settings.activity.lede', { name: card.name })}
      >
        <select
          className="input"
          aria-label={t('settings.activity.show')}
          value={filter}
          onChange={({ target }) => setFilter(target.value as Filter)}
        >
          {Object.entries(kinds).map(([id, label]) => (
            <option key={id} value={id}>
              {t(label)}
            </option>
          ))}
        </select>
      </PageHead>
      <Failure error={error} onRetry={loadMore} />
      {[...days].map(([day, ofDay]) => (
        <section key={day} className="stack">
          <h2 className="title-3">{day}</h2>
          <ul className="card rows">
            {ofDay.map((entry) => (
              <Entry key={entry.id} entry={entry} titles={titles} />
            ))}
          </ul>
        </section>
      ))}
      {shown.length === 0 && !isBusy && !error && (
        <Empty
          title={t('settings.activity.none')}
          hint={t('settings.activity.none.hint', { name: card.name })}
        />
      )}
      {hasMore && (
        <div className="actions">
          <button type="button" className="btn btn-s" disabled={isBusy} onClick={loadMore}>
            {t('settings.activity.earlier')}
          </button>
        </div>
      )}
    </>
  );
}

function groupByDay(entries: readonly ActivityEntry[]): Map<string, ActivityEntry[]> {
  const days = new Map<string, ActivityEntry[]>();
  for (const entry of entries) {
    const day = formatDay(entry.at);
    const entriesOfDay = days.get(day) ?? [];
    entriesOfDay.push(entry);
    days.set(day, entriesOfDay);
  }
  return days;
}

function useActivity() {
  const client = useOracle();
  const [entries, setEntries] = useState<readonly ActivityEntry[]>([]);
  const [cursor, setCursor] = useState<string | null>();
  const { isBusy, error, run } = useAction();
  const load = useCallback(
    (before: string | null | undefined) =>
      run(async () => {
        const page = await client.activity({ limit: PAGE_SIZE, ...(before && { before }) });
        setEntries((shown) => (before ? [...shown, ...page.entries] : page.entries));
        setCursor(page.nextCursor);
      }),
    [client, run],
  );
  useEffect(() => {
    void load(undefined);
  }, [load]);
  return { entries, hasMore: Boolean(cursor), isBusy, error, loadMore: () => load(cursor) };
}

const icons: Record<ActivityEntry['kind'], IconName> = {
  tool_call: 'tool',
  approval_requested: 'ask',
  approval_decided: 'ask',
  rules_changed: 'shield',
};

interface EntryProps {
  readonly entry: ActivityEntry;
  /** Of conversations, by id. */
  readonly titles: ReadonlyMap<string, string>;
}

function Entry({ entry, titles }: EntryProps) {
  const { kind, tool, sessionId, at, approvalId, decidedBy } = entry;
  const hasReceipt = kind === 'approval_decided' && approvalId && decidedBy === 'signature';
  return (
    <li className="row-wrap">
      <Icon name={icons[kind]} />
      <div className="grow">
        {tool ? humanize(tool) : t('settings.activity.rulesChanged')}
        <div className="small quiet">
          {t(describeKind(entry))}
          {sessionId && (
            <>
              {' · '}
              <a href={toHash({ name: 'conversation', sessionId })} dir="auto">
                {titles.get(sessionId) ?? t('settings.conversation')}
              </a>
            </>
          )}
        </div>
      </div>
      <Outcome entry={entry} />
      <time className="small quiet num" dateTime={at}>
        {formatTime(at)}
      </time>
      {hasReceipt && (
        <details className="fold row-below">
          <summary>
            <Icon name="right" flip className="i-chev" />
            {t('settings.activity.receipt')}
          </summary>
          <div>
            <ReceiptActions id={approvalId} />
          </div>
        </details>
      )}
    </li>
  );
}

function describeKind({ kind, decidedBy }: ActivityEntry): TextKey {
  switch (kind) {
    case 'tool_call':
      return 'settings.activity.ran';
    case 'approval_requested':
      return 'settings.activity.asked';
    case 'approval_decided':
      return decidedBy === 'host' ? 'settings.activity.byHost' : 'settings.activity.byYou';
    case 'rules_changed':
      return 'settings.activity.signedByYou';
  }
}

const outcomes = {
  done: ['settings.outcome.done', 'is-good'],
  error: ['settings.outcome.error', 'is-fault'],
  approved: ['settings.outcome.approved', 'is-good'],
  denied: ['settings.outcome.denied', ''],
  expired: ['settings.outcome.expired', 'is-warning'],
  cancelled: ['settings.outcome.cancelled', ''],
  stored: ['settings.saved', ''],
  deleted: ['settings.outcome.deleted', ''],
} as const satisfies Record<NonNullable<ActivityEntry['outcome']>, readonly [TextKey, string]>;

function Outcome({ entry: { outcome } }: { readonly entry: ActivityEntry }) {
  if (!outcome) return <span className="badge is-accent">{t('settings.outcome.waiting')}</span>;
  const [label, color] = outcomes[outcome];
  return <span className={`badge ${color}`}>{t(label)}</span>;
}
