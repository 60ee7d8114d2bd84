import type {
  OperatorAction,
  OperatorHost,
  OperatorOverview,
  OperatorUser,
  OracleClient,
  TurnFailure,
} from '@sibyl/client';
import { useCallback, useState } from 'react';
import { Badge, Code, DataTable } from './data-table.js';
import {
  formatBytes,
  formatCost,
  formatCount,
  formatMs,
  formatTime,
  shortenDid,
} from './format.js';
import { Loaded, usePolled } from './use-polled.js';

interface ViewProps {
  readonly client: OracleClient;
}

/** What works, how fast it is, and why turns fail. */
export function OverviewView({ client }: ViewProps) {
  const read = useCallback(
    async (signal: AbortSignal) => {
      const [overview, { hosts }, failures] = await Promise.all([
        client.operator.overview({ signal }),
        client.operator.hosts({ signal }),
        client.operator.failures({ signal, days: 1 }),
      ]);
      return { overview, hosts, failures };
    },
    [client],
  );
  return (
    <Loaded polled={usePolled(read)}>
      {({ overview, hosts, failures }) => (
        <>
          <Problems problems={overview.problems} />
          <Stats overview={overview} />
          <Hosts hosts={hosts} />
          <div className="cols">
            <Failures failures={failures.turns} />
            <DataTable
              title="Failed calls of models"
              rows={failures.models}
              rowKey={({ model, cause }) => `${model} ${cause}`}
              empty="None in the last hour"
              columns={[
                { title: 'Cause', cell: ({ cause }) => <Badge tone="fault">{cause}</Badge> },
                { title: 'What was said', cell: ({ detail }) => detail },
                { title: 'Times', isNumber: true, cell: ({ count }) => count },
              ]}
            />
          </div>
          <DataTable
            title="Rejected requests"
            rows={failures.requests}
            rowKey={({ code, lastAt }) => `${code} ${lastAt}`}
            empty="None in the last hour"
            columns={[
              { title: 'Reason', cell: ({ code }) => <Code text={code} /> },
              { title: 'Last', cell: ({ lastAt }) => formatTime(lastAt) },
              { title: 'Times', isNumber: true, cell: ({ count }) => count },
            ]}
          />
        </>
      )}
    </Loaded>
  );
}

function Problems({ problems }: Pick<OperatorOverview, 'problems'>) {
  return problems.map(({ hostId, text }) => (
    <p key={`${hostId} ${text}`} className="notice is-fault" role="alert">
      {hostId && <Code text={hostId} />} {text}
    </p>
  ));
}

function Stats({ overview }: { readonly overview: OperatorOverview }) {
  const { turns, timeToFirstToken: speed, today, sockets, streams } = overview;
  const share = today && today.turns > 0 ? (100 * today.failed) / today.turns : 0;
  return (
    <dl className="card stats">
      <div>
        <dt>Running now</dt>
        <dd>{turns ? `${turns.running} turns` : 'Unknown'}</dd>
        <dd>{turns && `${turns.queued} queued, ${turns.paused} waiting for an answer`}</dd>
      </div>
      <div>
        <dt>First text, median</dt>
        <dd>{speed ? formatMs(speed.medianMs) : '–'}</dd>
        <dd>{speed && `slowest 5 %: ${formatMs(speed.p95Ms)}`}</dd>
      </div>
      <div>
        <dt>Failed today</dt>
        <dd>{today ? `${share.toFixed(1)} %` : 'Unknown'}</dd>
        <dd>{today && `${today.failed} of ${today.turns} turns`}</dd>
      </div>
      <div>
        <dt>Cost today</dt>
        <dd>{formatCost(today?.cost)}</dd>
        <dd>
          {today?.users ?? 0} users, {sockets} sockets, {streams} streams
        </dd>
      </div>
    </dl>
  );
}

function Hosts({ hosts }: { readonly hosts: readonly OperatorHost[] }) {
  return (
    <DataTable
      title="Hosts"
      rows={hosts}
      rowKey={({ hostId }) => hostId}
      empty="No host has reported itself"
      columns={[
        { title: 'Host', cell: ({ hostId }) => <Code text={hostId} /> },
        { title: 'State', cell: (host) => <HostState host={host} /> },
        {
          title: 'Turns',
          isNumber: true,
          cell: ({ turns }) => `${turns.running} + ${turns.queued} queued`,
        },
        { title: 'Sockets', isNumber: true, cell: ({ sockets }) => sockets },
        { title: 'Bus', isNumber: true, cell: ({ busLagMs }) => formatMs(busLagMs) },
        { title: 'Memory', isNumber: true, cell: ({ memoryBytes }) => formatBytes(memoryBytes) },
        { title: 'Version', cell: ({ version }) => version },
        { title: 'Started', cell: ({ startedAt }) => formatTime(startedAt) },
      ]}
    />
  );
}

function HostState({ host: { state, readiness, updatedAt } }: { readonly host: OperatorHost }) {
  if (state === 'lost') return <Badge tone="fault">Lost, seen {formatTime(updatedAt)}</Badge>;
  return readiness.status === 'ready' ? (
    <Badge tone="good">Healthy</Badge>
  ) : (
    <Badge tone="warning">Not ready</Badge>
  );
}

function Failures({ failures }: { readonly failures: readonly TurnFailure[] }) {
  const most = Math.max(1, ...failures.map(({ count }) => count));
  return (
    <section className="card">
      <div className="card-head">
        <h2 className="title-2 grow">Failed turns by cause</h2>
        <span className="small quiet">last 24 hours</span>
      </div>
      {failures.length === 0 ? (
        <p className="empty">No turn has failed</p>
      ) : (
        <div className="card-pad">
          {failures.map(({ cause, text, count }) => (
            <div key={cause} className="hbar">
              <span title={cause}>{text}</span>
              <progress className="bar" max={most} value={count} aria-label={text} />
              <span className="num">{count}</span>
            </div>
          ))}
        </div>
      )}
    </section>
  );
}

/** Who uses the oracle, and how much. */
export function UsersView({ client }: ViewProps) {
  const read = useCallback(
    (signal: AbortSignal) => client.operator.users({ signal, days: 30 }),
    [client],
  );
  const polled = usePolled(read);
  const [error, setError] = useState<string>();
  const change = async (work: Promise<unknown>) => {
    await work.then(
      () => setError(undefined),
      (cause: Error) => setError(cause.message),
    );
    polled.reload();
  };
  return (
    <Loaded polled={polled}>
      {({ users, total }) => (
        <>
          {error && (
            <p className="notice is-fault" role="alert">
              {error}
            </p>
          )}
          <DataTable<OperatorUser>
            title="Users"
            aside={<span className="small quiet">{total} in the last 30 days</span>}
            rows={users}
            rowKey={({ user }) => user}
            empty="No user in the last 30 days"
            columns={[
              { title: 'Identity', cell: (user) => <Identity user={user} /> },
              { title: 'Turns', isNumber: true, cell: ({ turns }) => turns },
              { title: 'Failed', isNumber: true, cell: ({ failed }) => failed },
              {
                title: 'Tokens',
                isNumber: true,
                cell: ({ inputTokens, outputTokens }) => formatCount(inputTokens + outputTokens),
              },
              { title: 'Cost', isNumber: true, cell: ({ cost }) => formatCost(cost) },
              { title: 'Last', cell: ({ lastAt }) => (lastAt ? formatTime(lastAt) : '–') },
              {
                title: 'Action',
                cell: ({ user, blocked }) => (
                  <button
                    type="button"
                    className="btn btn-s btn-quiet"
                    onClick={() => change(client.operator[blocked ? 'unblock' : 'block'](user))}
                  >
                    {blocked ? 'Unblock' : 'Block'}
                  </button>
                ),
              },
            ]}
          />
        </>
      )}
    </Loaded>
  );
}

const Identity = ({ user: { user, blocked, limited } }: { readonly user: OperatorUser }) => (
  <>
    <Code text={user} short={shortenDid(user)} /> {blocked && <Badge tone="fault">Blocked</Badge>}
    {limited > 0 && <Badge tone="warning">Reached a limit {limited} times</Badge>}
  </>
);

/** Every plugin, and what it is missing. */
export function PluginsView({ client }: ViewProps) {
  const read = useCallback((signal: AbortSignal) => client.operator.plugins({ signal }), [client]);
  return (
    <Loaded polled={usePolled(read)}>
      {({ plugins }) => (
        <DataTable
          title="Plugins"
          rows={plugins}
          rowKey={({ name }) => name}
          empty="No plugins"
          columns={[
            { title: 'Plugin', cell: ({ name }) => <Code text={name} /> },
            { title: 'Version', cell: ({ version }) => version },
            {
              title: 'State',
              cell: ({ isLoaded }) =>
                isLoaded ? <Badge tone="good">Loaded</Badge> : <Badge>Off</Badge>,
            },
            { title: 'Missing', cell: ({ missing }) => missing ?? '' },
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
          title="Jobs and schedules"
          rows={jobs}
          rowKey={({ name, plugin }) => `${plugin} ${name}`}
          empty="No jobs"
          columns={[
            { title: 'Job', cell: ({ name }) => name },
            { title: 'Plugin', cell: ({ plugin }) => plugin ?? '' },
            { title: 'Waiting', isNumber: true, cell: ({ waiting }) => waiting },
            { title: 'Running', isNumber: true, cell: ({ running }) => running },
            { title: 'Failed', isNumber: true, cell: ({ failed }) => failed },
            { title: 'Next', cell: ({ nextAt }) => (nextAt ? formatTime(nextAt) : '') },
          ]}
        />
      )}
    </Loaded>
  );
}

const ACTIONS: Readonly<Record<OperatorAction['action'], string>> = {
  block_user: 'Blocked a user',
  unblock_user: 'Unblocked a user',
  add_operator: 'Added an operator',
  remove_operator: 'Removed an operator',
  view_arguments: 'Looked at arguments of tools',
};

/** What operators did. */
export function AuditView({ client }: ViewProps) {
  const read = useCallback((signal: AbortSignal) => client.operator.audit({ signal }), [client]);
  return (
    <Loaded polled={usePolled(read)}>
      {({ actions }) => (
        <DataTable
          title="Audit log"
          rows={actions}
          rowKey={({ id }) => id}
          empty="Operators did nothing yet"
          columns={[
            { title: 'When', cell: ({ at }) => formatTime(at) },
            {
              title: 'Operator',
              cell: ({ operator }) => <Code text={operator} short={shortenDid(operator)} />,
            },
            { title: 'Action', cell: ({ action }) => ACTIONS[action] },
            {
              title: 'To',
              cell: ({ target }) => <Code text={target} short={shortenDid(target)} />,
            },
            { title: 'Reason', cell: ({ note }) => note ?? '' },
          ]}
        />
      )}
    </Loaded>
  );
}
