import type { OperatorSpan, OperatorTrace, OperatorTurn, OracleClient } from '@sibyl/client';
import { useCallback } from 'react';
import { Badge, Code, DataTable } from './data-table.js';
import { formatCost, formatCount, formatMs, formatTime, shortenDid } from './format.js';
import { Loaded, usePolled } from './use-polled.js';

interface TurnsViewProps {
  readonly client: OracleClient;
  /** The turn to show in detail. */
  readonly runId: string | undefined;
}

/** The latest turns of all users, and one of them in detail. */
export function TurnsView({ client, runId }: TurnsViewProps) {
  const read = useCallback((signal: AbortSignal) => client.operator.turns({ signal }), [client]);
  return (
    <>
      {runId && <Trace key={runId} client={client} runId={runId} />}
      <Loaded polled={usePolled(read)}>
        {({ turns }) => (
          <DataTable<OperatorTurn>
            title="Turns"
            rows={turns}
            rowKey={(turn) => turn.runId}
            empty="No turns yet"
            columns={[
              {
                title: 'Turn',
                cell: (turn) => (
                  <a href={`#turns/${turn.runId}`}>
                    <Code text={turn.runId} short={turn.runId.slice(0, 13)} />
                  </a>
                ),
              },
              { title: 'State', cell: (turn) => <TurnState turn={turn} /> },
              { title: 'User', cell: ({ user }) => <Code text={user} short={shortenDid(user)} /> },
              { title: 'Host', cell: ({ hostId }) => hostId && <Code text={hostId} /> },
              { title: 'Model', cell: ({ models }) => models.join(', ') },
              {
                title: 'First text',
                isNumber: true,
                cell: ({ firstTextMs }) =>
                  firstTextMs === undefined ? '–' : formatMs(firstTextMs),
              },
              {
                title: 'Tokens',
                isNumber: true,
                cell: ({ inputTokens, outputTokens }) => formatCount(inputTokens + outputTokens),
              },
              { title: 'Cost', isNumber: true, cell: ({ cost }) => formatCost(cost) },
              { title: 'When', cell: ({ createdAt }) => formatTime(createdAt) },
            ]}
          />
        )}
      </Loaded>
    </>
  );
}

const TONES: Readonly<Record<string, 'good' | 'warning' | 'fault' | 'accent'>> = {
  finished: 'good',
  running: 'accent',
  paused: 'accent',
  queued: 'warning',
  failed: 'fault',
};

function TurnState({ turn: { status, cause } }: { readonly turn: OperatorTurn }) {
  const tone = cause ? 'fault' : TONES[status];
  return <Badge {...(tone && { tone })}>{cause ? `${status}: ${cause}` : status}</Badge>;
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
            Turn <Code text={turn.runId} />
          </h2>
          <p className="small quiet">
            {[turn.hostId, ...turn.models, turn.traceId && `trace ${turn.traceId}`]
              .filter(Boolean)
              .join(' · ')}
          </p>
          {turn.message && <p className="small is-fault">{turn.message}</p>}
        </div>
        <TurnState turn={turn} />
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard. */}
      <section className="table-wrap" tabIndex={0} aria-label="Steps of the turn">
        <table className="table water">
          <thead>
            <tr>
              <th>Step</th>
              <th>Timeline, {formatMs(end)}</th>
              <th className="num">Took</th>
            </tr>
          </thead>
          <tbody>
            {ordered.map(({ span, depth }) => (
              <tr key={span.id}>
                <td>
                  <span className={`tree d${Math.min(depth, 4)}`}>
                    {span.name} {span.error && <Badge tone="fault">{span.error}</Badge>}
                    {span.arguments && (
                      <code className="args">{JSON.stringify(span.arguments)}</code>
                    )}
                  </span>
                </td>
                <td>
                  <Bar span={span} end={end} />
                </td>
                <td className="num">{formatMs(span.ms)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      <p className="card-foot small quiet">
        {argumentsShared
          ? 'The user lets operators see the arguments of tools. That you looked is in the audit log.'
          : 'Arguments are hidden. This user has not allowed operators to see them.'}
        {omitted > 0 && ` ${omitted} further steps were not kept.`}
      </p>
    </section>
  );
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
