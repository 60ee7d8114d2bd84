import type { OperatorSpan, OperatorTrace, OperatorTurn, OracleClient } from '@sibyl/client';
import { useCallback } from 'react';
import { showReordering } from '../i18n/format.js';
import { type TextKey, t } from '../i18n/i18n.js';
import {
  Badge,
  Code,
  DataTable,
  describeCause,
  Filter,
  formatCost,
  formatCount,
  formatMs,
  Loaded,
  UserLink,
  useLimit,
  usePolled,
  When,
} from './parts.js';

interface TurnsViewProps {
  readonly client: OracleClient;
  /** The turn to show in detail. */
  readonly runId: string | undefined;
  /** The parameters in the address. */
  readonly query: string;
}

/** The server's limit. */
const MAX_TURNS = 200;

/** The latest turns of all users, and one of them in detail. */
export function TurnsView({ client, runId, query }: TurnsViewProps) {
  const { limit, findMore } = useLimit(50, MAX_TURNS);
  const read = useCallback(
    (signal: AbortSignal) => client.operator.turns({ ...readFilter(query), signal, limit }),
    [client, limit, query],
  );
  return (
    <>
      {runId && <Trace key={runId} client={client} runId={runId} />}
      <Filter section="turns" query={query}>
        <StateFields {...readFilter(query)} />
      </Filter>
      <Loaded polled={usePolled(read)}>
        {({ turns }) => (
          <DataTable<OperatorTurn>
            title={t('operator.turns')}
            rows={turns}
            rowKey={(turn) => turn.runId}
            empty={t('operator.turns.none')}
            onMore={findMore(turns.length)}
            max={MAX_TURNS}
            columns={[
              {
                title: t('operator.turn'),
                cell: (turn) => (
                  <a href={`#turns/${turn.runId}${query && `?${query}`}`}>
                    <Code text={turn.runId} short={turn.runId.slice(0, 13)} />
                  </a>
                ),
              },
              { title: t('operator.state'), cell: (turn) => <TurnState turn={turn} /> },
              { title: t('operator.user'), cell: ({ user }) => <UserLink did={user} /> },
              { title: t('operator.host'), cell: ({ hostId }) => hostId && <Code text={hostId} /> },
              { title: t('operator.model'), cell: ({ models }) => models.join(', ') },
              {
                title: t('operator.firstText.column'),
                isNumber: true,
                cell: ({ firstTextMs }) =>
                  firstTextMs === undefined ? '–' : formatMs(firstTextMs),
              },
              {
                title: t('operator.tokens'),
                isNumber: true,
                cell: ({ inputTokens, outputTokens }) => formatCount(inputTokens + outputTokens),
              },
              { title: t('operator.cost'), isNumber: true, cell: ({ cost }) => formatCost(cost) },
              { title: t('operator.when'), cell: ({ createdAt }) => <When at={createdAt} /> },
            ]}
          />
        )}
      </Loaded>
    </>
  );
}

interface TurnFilter {
  readonly state: 'open' | 'failed' | 'all';
  readonly user?: string;
  readonly cause?: string;
}

function readFilter(query: string): TurnFilter {
  const { state, user, cause } = Object.fromEntries(new URLSearchParams(query));
  return {
    state: state === 'open' || state === 'failed' ? state : 'all',
    ...(user && { user }),
    ...(cause && { cause }),
  };
}

/** The cause was chosen in the overview. */
const StateFields = ({ state, cause }: TurnFilter) => (
  <>
    <label className="field">
      <span>{t('operator.state')}</span>
      <select className="input" name="state" defaultValue={state}>
        <option value="all">{t('operator.filter.all')}</option>
        <option value="open">{t('operator.filter.open')}</option>
        <option value="failed">{t('operator.failed')}</option>
      </select>
    </label>
    {cause && (
      <label className="field">
        <span>{t('operator.cause')}</span>
        <select className="input" name="cause" defaultValue={cause}>
          <option value={cause}>{describeCause(cause)}</option>
          <option value="">{t('operator.filter.all')}</option>
        </select>
      </label>
    )}
  </>
);

const TONES: Readonly<Record<string, 'good' | 'warning' | 'fault' | 'accent'>> = {
  finished: 'good',
  running: 'accent',
  paused: 'accent',
  queued: 'warning',
  failed: 'fault',
};

const STATES: Readonly<Record<string, TextKey>> = {
  queued: 'operator.state.queued',
  running: 'operator.state.running',
  paused: 'operator.state.paused',
  finished: 'operator.state.finished',
  aborted: 'operator.state.aborted',
  interrupted: 'operator.state.interrupted',
  failed: 'operator.state.failed',
  continued: 'operator.state.continued',
};

function TurnState({ turn: { status, cause } }: { readonly turn: OperatorTurn }) {
  const tone = cause ? 'fault' : TONES[status];
  const key = STATES[status];
  const name = key ? t(key) : status;
  return (
    <>
      <Badge {...(tone && { tone })}>{name}</Badge>{' '}
      {cause && (
        <span className="small quiet" title={cause}>
          {describeCause(cause)}
        </span>
      )}
    </>
  );
}

/** What a turn did, as a waterfall. */
function Trace({ client, runId }: { readonly client: OracleClient; readonly runId: string }) {
  const read = useCallback(
    (signal: AbortSignal) => client.operator.trace(runId, { signal }),
    [client, runId],
  );
  return <Loaded polled={usePolled(read)}>{(trace) => <Waterfall trace={trace} />}</Loaded>;
}

const WIDTH = 640;
const COLORS: Readonly<Record<OperatorSpan['kind'], string>> = {
  waiting: 'c3',
  turn: 'c2',
  model: 'c1',
  tool: 'c3',
  hook: 'c3',
};

function Waterfall({ trace }: { readonly trace: OperatorTrace }) {
  const { turn, spans, argumentsShared, omitted } = trace;
  const end = Math.max(1, ...spans.map(({ start, ms }) => start + ms));
  const ordered = orderSpans(spans);
  return (
    <section className="card">
      <div className="card-head">
        <div className="grow">
          <h2 className="title-2">
            {t('operator.turn')} <Code text={turn.runId} />
          </h2>
          <p className="small quiet">
            {[
              turn.hostId,
              ...turn.models,
              turn.traceId && t('operator.trace', { id: turn.traceId }),
            ]
              .filter(Boolean)
              .join(' · ')}
          </p>
          {turn.message && <p className="small is-fault">{turn.message}</p>}
        </div>
        <TurnState turn={turn} />
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard. */}
      <section className="table-wrap" tabIndex={0} aria-label={t('operator.steps')}>
        <table className="table water">
          <thead>
            <tr>
              <th>{t('operator.step')}</th>
              <th>{t('operator.timeline', { time: formatMs(end) })}</th>
              <th className="num">{t('operator.took')}</th>
            </tr>
          </thead>
          <tbody>
            {ordered.map((step) => (
              <Step key={step.span.id} {...step} end={end} />
            ))}
          </tbody>
        </table>
      </section>
      <p className="approval-foot small quiet">
        {t(argumentsShared ? 'operator.arguments.shown' : 'operator.arguments.hidden')}{' '}
        {omitted > 0 && t('operator.omitted', { count: omitted })}
      </p>
    </section>
  );
}

interface StepProps {
  readonly span: OperatorSpan;
  readonly depth: number;
  /** When the last step ended. */
  readonly end: number;
}

function Step({ span, depth, end }: StepProps) {
  return (
    <tr>
      <td>
        <span className={`tree d${Math.min(depth, 4)}`}>
          {toStepName(span)} {span.error && <Badge tone="fault">{span.error}</Badge>}
          {span.arguments && (
            <code className="quiet step-args">
              {showReordering(JSON.stringify(span.arguments))}
            </code>
          )}
        </span>
      </td>
      <td>
        <Bar span={span} end={end} />
      </td>
      <td className="num">{formatMs(span.ms)}</td>
    </tr>
  );
}

/** The host names its own steps; names of hooks, models and tools are the same in every language. */
function toStepName({ kind, name }: OperatorSpan): string {
  if (kind === 'turn') return t('operator.turn');
  return kind === 'waiting' ? t('operator.job.waiting') : name;
}

function Bar({ span, end }: { readonly span: OperatorSpan; readonly end: number }) {
  const x = (span.start / end) * WIDTH;
  const width = Math.max(2, (span.ms / end) * WIDTH);
  const color = span.error ? 'cf' : COLORS[span.kind];
  return (
    <svg viewBox={`0 0 ${WIDTH} 16`} preserveAspectRatio="none" aria-hidden="true">
      <rect className={color} x={Math.min(x, WIDTH - 2)} y="4" width={width} height="8" />
    </svg>
  );
}

interface OrderedSpan {
  readonly span: OperatorSpan;
  readonly depth: number;
}

/** Each span below its parent. */
function orderSpans(spans: readonly OperatorSpan[]): readonly OrderedSpan[] {
  const children = new Map<number, OperatorSpan[]>();
  const roots = spans.filter(({ kind }) => kind === 'turn' || kind === 'waiting');
  for (const span of spans)
    if (!roots.includes(span)) {
      const isKnown = spans.some(({ id }) => id === span.parent);
      const parent = isKnown ? span.parent : 0;
      children.set(parent, [...(children.get(parent) ?? []), span]);
    }
  const visit = (span: OperatorSpan, depth: number): OrderedSpan[] => [
    { span, depth },
    ...(children.get(span.id) ?? []).flatMap((child) => visit(child, depth + 1)),
  ];
  return roots.flatMap((root) => visit(root, 0));
}
