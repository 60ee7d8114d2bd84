import type { OperatorAction, OperatorUser, OracleClient } from '@sibyl/client';
import { useCallback, useState } from 'react';
import { explainError } from '../i18n/explain-error.js';
import { formatDateTime } from '../i18n/format.js';
import { type TextKey, t } from '../i18n/i18n.js';
import {
  Badge,
  Code,
  type Column,
  DataTable,
  Filter,
  formatCost,
  formatCount,
  Loaded,
  shortenDid,
  UserLink,
  useLimit,
  usePolled,
  When,
} from './parts.js';

interface ViewProps {
  readonly client: OracleClient;
}

const USER_DAYS = 30;
const PAGE_SIZE = 100;
/** The server's limit. */
const MAX_PAGE_SIZE = 500;

interface UsersViewProps extends ViewProps {
  /** The parameters in the address. */
  readonly query: string;
}

/** Who uses the oracle, and how much. */
export function UsersView({ client, query }: UsersViewProps) {
  const { limit, findMore } = useLimit(PAGE_SIZE, MAX_PAGE_SIZE);
  const read = useCallback(
    (signal: AbortSignal) => {
      const user = new URLSearchParams(query).get('user');
      return client.operator.users({ signal, days: USER_DAYS, limit, ...(user && { user }) });
    },
    [client, limit, query],
  );
  const polled = usePolled(read);
  const [error, setError] = useState<string>();
  const toggleBlock = async ({ user, blocked }: OperatorUser) => {
    await client.operator[blocked ? 'unblock' : 'block'](user).then(
      () => setError(undefined),
      (cause: Error) => setError(explainError(cause)),
    );
    polled.reload();
  };
  return (
    <>
      <Filter section="users" query={query} />
      {error && (
        <p className="notice is-fault" role="alert">
          {error}
        </p>
      )}
      <Loaded polled={polled}>
        {({ users, total }) => (
          <DataTable<OperatorUser>
            title={t('operator.users')}
            aside={
              !query && (
                <span className="small quiet">
                  {t('operator.users.total', { count: total, days: USER_DAYS })}
                </span>
              )
            }
            rows={users}
            rowKey={({ user }) => user}
            empty={t('operator.users.none')}
            onMore={findMore(users.length)}
            max={MAX_PAGE_SIZE}
            columns={listUserColumns(toggleBlock)}
          />
        )}
      </Loaded>
    </>
  );
}

const listUserColumns = (
  toggleBlock: (user: OperatorUser) => Promise<void>,
): Column<OperatorUser>[] => [
  { title: t('operator.identity'), cell: (user) => <Identity user={user} /> },
  { title: t('operator.turns'), isNumber: true, cell: ({ turns }) => formatCount(turns) },
  { title: t('operator.failed'), isNumber: true, cell: ({ failed }) => failed },
  {
    title: t('operator.tokens'),
    isNumber: true,
    cell: ({ inputTokens, outputTokens }) => formatCount(inputTokens + outputTokens),
  },
  { title: t('operator.cost'), isNumber: true, cell: ({ cost }) => formatCost(cost) },
  { title: t('operator.sockets'), isNumber: true, cell: ({ sockets }) => sockets },
  { title: t('operator.last'), cell: ({ lastAt }) => (lastAt ? <When at={lastAt} /> : '–') },
  {
    title: t('operator.action'),
    cell: (user) => (
      <button type="button" className="btn btn-s btn-quiet" onClick={() => toggleBlock(user)}>
        {t(user.blocked ? 'operator.unblock' : 'operator.block')}
      </button>
    ),
  },
];

const Identity = ({ user: { user, blocked, limited } }: { readonly user: OperatorUser }) => (
  <>
    <UserLink did={user} /> {blocked && <Badge tone="fault">{t('operator.blocked')}</Badge>}
    {limited > 0 && <Badge tone="warning">{t('operator.limited', { count: limited })}</Badge>}
  </>
);

/** Every plugin, and what it is missing. */
export function PluginsView({ client }: ViewProps) {
  const read = useCallback((signal: AbortSignal) => client.operator.plugins({ signal }), [client]);
  return (
    <Loaded polled={usePolled(read)}>
      {({ plugins }) => (
        <DataTable
          title={t('operator.plugins')}
          rows={plugins}
          rowKey={({ name }) => name}
          empty={t('operator.plugins.none')}
          columns={[
            { title: t('operator.plugin'), cell: ({ name }) => <Code text={name} /> },
            { title: t('operator.version'), cell: ({ version }) => version },
            {
              title: t('operator.state'),
              cell: ({ isLoaded }) =>
                isLoaded ? (
                  <Badge tone="good">{t('operator.loaded')}</Badge>
                ) : (
                  <Badge>{t('operator.off')}</Badge>
                ),
            },
            { title: t('operator.missing'), cell: ({ missing }) => missing ?? '' },
          ]}
        />
      )}
    </Loaded>
  );
}

/** Background work. */
export function JobsView({ client }: ViewProps) {
  const read = useCallback((signal: AbortSignal) => client.operator.jobs({ signal }), [client]);
  return (
    <Loaded polled={usePolled(read)}>
      {({ jobs }) => (
        <DataTable
          title={t('operator.jobs')}
          rows={jobs}
          rowKey={({ name, plugin }) => `${plugin} ${name}`}
          empty={t('operator.jobs.none')}
          columns={[
            { title: t('operator.job'), cell: ({ name }) => name },
            { title: t('operator.plugin'), cell: ({ plugin }) => plugin ?? '' },
            { title: t('operator.job.waiting'), isNumber: true, cell: ({ waiting }) => waiting },
            { title: t('operator.job.running'), isNumber: true, cell: ({ running }) => running },
            { title: t('operator.failed'), isNumber: true, cell: ({ failed }) => failed },
            { title: t('operator.next'), cell: ({ nextAt }) => nextAt && <When at={nextAt} /> },
          ]}
        />
      )}
    </Loaded>
  );
}

const ACTIONS: Readonly<Record<OperatorAction['action'], TextKey>> = {
  block_user: 'operator.audit.block',
  unblock_user: 'operator.audit.unblock',
  add_operator: 'operator.audit.add',
  remove_operator: 'operator.audit.remove',
  view_arguments: 'operator.audit.arguments',
};

const MAX_ACTIONS = 20_000;
const LONG_INTERVAL_MS = 60_000;

/** Reads the newest entries of the log, page by page. */
async function readActions(
  client: OracleClient,
  wanted: number,
  signal: AbortSignal,
): Promise<readonly OperatorAction[]> {
  const all: OperatorAction[] = [];
  while (all.length < wanted) {
    const limit = Math.min(wanted - all.length, MAX_PAGE_SIZE);
    const before = all.at(-1)?.id;
    const { actions } = await client.operator.audit({ signal, limit, ...(before && { before }) });
    all.push(...actions);
    if (actions.length < limit) break;
  }
  return all;
}

/** What operators did. */
export function AuditView({ client }: ViewProps) {
  const { limit, findMore } = useLimit(PAGE_SIZE, MAX_ACTIONS);
  const read = useCallback(
    (signal: AbortSignal) => readActions(client, limit, signal),
    [client, limit],
  );
  // A long log takes several requests.
  const polled = usePolled(read, limit > MAX_PAGE_SIZE ? LONG_INTERVAL_MS : undefined);
  return (
    <Loaded polled={polled}>
      {(actions) => (
        <DataTable
          title={t('operator.audit')}
          rows={actions}
          rowKey={({ id }) => id}
          empty={t('operator.audit.none')}
          onMore={findMore(actions.length)}
          max={MAX_ACTIONS}
          columns={[
            {
              title: t('operator.when'),
              cell: ({ at }) => <span className="when">{formatDateTime(at)}</span>,
            },
            {
              title: t('operator.title'),
              cell: ({ operator }) => <Code text={operator} short={shortenDid(operator)} />,
            },
            { title: t('operator.action'), cell: ({ action }) => t(ACTIONS[action]) },
            {
              title: t('operator.to'),
              cell: ({ target }) => <Code text={target} short={shortenDid(target)} />,
            },
            { title: t('operator.reason'), cell: ({ note }) => <bdi>{note ?? ''}</bdi> },
          ]}
        />
      )}
    </Loaded>
  );
}
