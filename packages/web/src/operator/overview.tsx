import type {
  FailedCheck,
  OperatorFailures,
  OperatorHost,
  OperatorOverview,
  OperatorSpeed,
  OracleClient,
  TurnFailure,
} from '@sibyl/client';
import { useCallback } from 'react';
import { formatBytes, formatDateTime, formatTime, formatWhen, nowMs } from '../i18n/format.js';
import { formatNumber, t } from '../i18n/i18n.js';
import { Icon } from '../ui/icon.js';
import {
  Badge,
  Code,
  DataTable,
  describeCause,
  formatCost,
  formatMs,
  formatShare,
  Loaded,
  UserLink,
  usePolled,
  When,
} from './parts.js';

interface OverviewProps {
  readonly client: OracleClient;
}

/** What does not work, then what happens now. Answers also while the store does not. */
export function OverviewView({ client }: OverviewProps) {
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
          <SpeedCard client={client} />
          <div className="cols">
            <Failures failures={failures.turns} />
            <DataTable
              title={t('operator.models.title')}
              rows={failures.models}
              rowKey={({ model, cause, lastAt }) => `${model} ${cause} ${lastAt}`}
              empty={t('operator.noneLastHour')}
              columns={[
                { title: t('operator.cause'), cell: ({ cause }) => describeCause(cause) },
                { title: t('operator.said'), cell: ({ detail }) => detail },
                { title: t('operator.times'), isNumber: true, cell: ({ count }) => count },
              ]}
            />
          </div>
          <Rejected requests={failures.requests} limited={overview.limited} />
        </>
      )}
    </Loaded>
  );
}

interface RejectedProps {
  readonly requests: OperatorFailures['requests'];
  readonly limited: OperatorOverview['limited'];
}

function Rejected({ requests, limited }: RejectedProps) {
  return (
    <div className="cols">
      <DataTable
        title={t('operator.requests.title')}
        rows={requests}
        rowKey={({ code, lastAt }) => `${code} ${lastAt}`}
        empty={t('operator.noneLastHour')}
        columns={[
          { title: t('operator.reason'), cell: ({ code }) => <Code text={code} /> },
          { title: t('operator.last'), cell: ({ lastAt }) => <When at={lastAt} /> },
          { title: t('operator.times'), isNumber: true, cell: ({ count }) => count },
        ]}
      />
      <DataTable
        title={t('operator.limited.title')}
        rows={limited}
        rowKey={({ did }) => did}
        empty={t('operator.noneLastHour')}
        columns={[
          {
            title: t('operator.user'),
            cell: ({ did }) => <UserLink did={did} />,
          },
          { title: t('operator.last'), cell: ({ lastAt }) => <When at={lastAt} /> },
          { title: t('operator.times'), isNumber: true, cell: ({ count }) => count },
        ]}
      />
    </div>
  );
}

const CHECKS = {
  host: 'operator.problem.host',
  store: 'operator.problem.store',
  disk: 'operator.problem.disk',
  model: 'operator.problem.model',
  plugins: 'operator.problem.plugins',
  lost: 'operator.problem.lost',
} as const satisfies Record<FailedCheck['check'], string>;

function Problems({ problems }: Pick<OperatorOverview, 'problems'>) {
  if (problems.length === 0) return undefined;
  return (
    <div className="stack stack-2" role="alert">
      {problems.map(({ hostId, check, text, since }) => (
        <div key={`${hostId} ${check}`} className="notice is-fault">
          <Icon name="alert" />
          <div className="grow">
            <p className="strong">
              {t(CHECKS[check])} <Code text={hostId} />
            </p>
            {check !== 'lost' && (
              <p className="break">
                <bdi>{text}</bdi>
              </p>
            )}
            {since && (
              <p className="small quiet">
                <time dateTime={since}>{t('operator.since', { time: formatDateTime(since) })}</time>
              </p>
            )}
          </div>
        </div>
      ))}
    </div>
  );
}

function Stats({ overview }: { readonly overview: OperatorOverview }) {
  const { turns, timeToFirstToken: speed, today, sockets, streams } = overview;
  const share = today && today.turns > 0 ? today.failed / today.turns : 0;
  const unknown = t('operator.unknown');
  return (
    <dl className="card stats">
      <div>
        <dt>{t('operator.running')}</dt>
        <dd>{turns ? t('operator.turnCount', { count: turns.running }) : unknown}</dd>
        <dd>{turns && t('operator.waiting', { queued: turns.queued, paused: turns.paused })}</dd>
      </div>
      <div>
        <dt>{t('operator.firstText')}</dt>
        <dd>{speed ? formatMs(speed.medianMs) : '–'}</dd>
        <dd>{speed && t('operator.slowest', { time: formatMs(speed.p95Ms) })}</dd>
      </div>
      <div>
        <dt>{t('operator.failedToday')}</dt>
        <dd>{today ? formatShare(share) : unknown}</dd>
        <dd>{today && t('operator.failedShare', { failed: today.failed, turns: today.turns })}</dd>
      </div>
      <div>
        <dt>{t('operator.costToday')}</dt>
        <dd>{formatCost(today?.cost)}</dd>
        <dd>{today ? t('operator.people', { users: today.users, sockets, streams }) : unknown}</dd>
      </div>
    </dl>
  );
}

function Hosts({ hosts }: { readonly hosts: readonly OperatorHost[] }) {
  return (
    <DataTable
      title={t('operator.hosts')}
      rows={hosts}
      rowKey={({ hostId }) => hostId}
      empty={t('operator.hosts.none')}
      columns={[
        { title: t('operator.host'), cell: ({ hostId }) => <Code text={hostId} /> },
        { title: t('operator.state'), cell: (host) => <HostState host={host} /> },
        {
          title: t('operator.turns'),
          isNumber: true,
          cell: ({ turns }) =>
            t('operator.turnsOfHost', { running: turns.running, queued: turns.queued }),
        },
        { title: t('operator.sockets'), isNumber: true, cell: ({ sockets }) => sockets },
        { title: t('operator.bus'), isNumber: true, cell: ({ busLagMs }) => formatMs(busLagMs) },
        {
          title: t('operator.memory'),
          isNumber: true,
          cell: ({ memoryBytes }) => formatBytes(memoryBytes),
        },
        { title: t('operator.version'), cell: ({ version }) => version },
        { title: t('operator.started'), cell: ({ startedAt }) => <When at={startedAt} /> },
      ]}
    />
  );
}

function HostState({ host: { state, readiness, updatedAt } }: { readonly host: OperatorHost }) {
  const time = formatWhen(updatedAt);
  if (state === 'lost') return <Badge tone="fault">{t('operator.host.lost', { time })}</Badge>;
  if (state === 'unknown')
    return <Badge tone="warning">{t('operator.host.unknown', { time })}</Badge>;
  return readiness.status === 'ready' ? (
    <Badge tone="good">{t('operator.host.ready')}</Badge>
  ) : (
    <Badge tone="warning">{t('operator.host.notReady')}</Badge>
  );
}

function Failures({ failures }: { readonly failures: readonly TurnFailure[] | null }) {
  const most = Math.max(1, ...(failures ?? []).map(({ count }) => count));
  return (
    <section className="card">
      <div className="card-head">
        <h2 className="title-2 grow">{t('operator.failures.title')}</h2>
        <span className="small quiet">{t('operator.lastDay')}</span>
      </div>
      {!failures || failures.length === 0 ? (
        <p className="empty">{t(failures ? 'operator.failures.none' : 'operator.unknown')}</p>
      ) : (
        <div className="card-pad">
          {failures.map(({ cause, text, count }) => (
            <div key={cause} className="hbar is-cause">
              <a href={`#turns?${new URLSearchParams({ cause })}`} title={cause}>
                {describeCause(cause, text)}
              </a>
              <progress
                className="bar"
                max={most}
                value={count}
                aria-label={describeCause(cause, text)}
              />
              <span className="num">{formatNumber(count)}</span>
            </div>
          ))}
        </div>
      )}
    </section>
  );
}

const SPEED_INTERVAL_MS = 30_000;
const SPEED_HOURS = 24;

function SpeedCard({ client }: OverviewProps) {
  const read = useCallback(
    (signal: AbortSignal) => client.operator.speed({ signal, hours: SPEED_HOURS }),
    [client],
  );
  return (
    <Loaded polled={usePolled(read, SPEED_INTERVAL_MS)}>
      {(speed) => <SpeedChart speed={speed} />}
    </Loaded>
  );
}

const WIDTH = 720;
const HEIGHT = 120;

/** Median and the slowest 5 % over time. */
function SpeedChart({ speed: { points, stepMs } }: { readonly speed: OperatorSpeed }) {
  const max = Math.max(1, ...points.map(({ p95Ms }) => p95Ms));
  const end = nowMs();
  const begin = end - SPEED_HOURS * 3_600_000;
  const draw = (name: 'medianMs' | 'p95Ms') =>
    points
      .map((point) => {
        const x = ((Date.parse(point.at) + stepMs / 2 - begin) / (end - begin)) * WIDTH;
        const y = HEIGHT - (point[name] / max) * HEIGHT;
        const place = `${Math.max(0, Math.min(WIDTH, x)).toFixed(1)} ${y.toFixed(1)}`;
        // A single point would have no length.
        return points.length === 1 ? `M${place}h-6` : place;
      })
      .join('L')
      .replace(/^(?=\d)/, 'M');
  const last = points.at(-1);
  return (
    <figure className="card chart">
      <figcaption>
        {t('operator.speed.title')}
        <span className="legend">
          <span>{t('operator.speed.median')}</span>
          <span>{t('operator.speed.p95')}</span>
        </span>
      </figcaption>
      {last ? (
        <>
          <svg
            className="speed-chart"
            viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
            preserveAspectRatio="none"
            role="img"
            aria-label={t('operator.speed.label', {
              median: formatMs(last.medianMs),
              p95: formatMs(last.p95Ms),
              max: formatMs(max),
            })}
          >
            <path className="g" d={`M0 ${HEIGHT}h${WIDTH}M0 ${HEIGHT / 2}h${WIDTH}M0 0h${WIDTH}`} />
            <path className="stroke-2" d={draw('p95Ms')} />
            <path className="stroke-1" d={draw('medianMs')} />
          </svg>
          {/* As the chart, from left to right in every language. */}
          <div className="line small quiet" dir="ltr">
            <span>{formatTime(begin)}</span>
            <span className="push">{t('operator.speed.max', { max: formatMs(max) })}</span>
            <span className="push">{formatTime(end)}</span>
          </div>
        </>
      ) : (
        <p className="empty">{t('operator.speed.none')}</p>
      )}
    </figure>
  );
}
