import type { JsonObject } from '@sibyl/client';
import { formatNumber, t } from '../i18n/i18n.js';
import { Table as DataTable } from '../markdown/elements.js';
import { MAX_POINTS } from './schemas.js';

interface Point {
  readonly label: string;
  readonly value: number;
}

interface ChartData {
  readonly title: string;
  readonly kind: 'bar' | 'line';
  readonly unit: string;
  readonly points: readonly Point[];
}

/** Reads what a model sent; invalid points are omitted. */
export function readChart({ title, kind, unit, points }: JsonObject): ChartData {
  const list = Array.isArray(points) ? points.slice(0, MAX_POINTS) : [];
  return {
    title: typeof title === 'string' ? title : t('chat.chart'),
    kind: kind === 'line' ? 'line' : 'bar',
    unit: typeof unit === 'string' ? unit : '',
    points: list.flatMap((point) => {
      const { label, value } = (point ?? {}) as Partial<Point>;
      if (typeof value !== 'number' || !Number.isFinite(value)) return [];
      return [{ label: typeof label === 'string' ? label : '', value }];
    }),
  };
}

const WIDTH = 640;
const HEIGHT = 280;
const MARGIN = { top: 16, right: 16, bottom: 44, left: 56 };
const MAX_LABELS = 12;

/** Draws the points; screen readers get them as a list. */
function Chart({ title, kind, unit, points }: ChartData) {
  const scale = createScale(points);
  const every = Math.ceil(points.length / MAX_LABELS);
  return (
    <figure className="card chart">
      <figcaption>
        {title} {unit && <span className="quiet small">{unit}</span>}
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        role="img"
        aria-label={describeChart(title, unit, points)}
      >
        {scale.ticks.map((tick) => (
          <g key={tick}>
            <line
              className="g"
              x1={MARGIN.left}
              x2={WIDTH - MARGIN.right}
              y1={scale.y(tick)}
              y2={scale.y(tick)}
            />
            <text x={MARGIN.left - 8} y={scale.y(tick) + 4} textAnchor="end">
              {formatNumber(tick)}
            </text>
          </g>
        ))}
        {kind === 'bar' ? (
          <Bars points={points} scale={scale} />
        ) : (
          <Line points={points} scale={scale} />
        )}
        {points.map(({ label }, index) =>
          index % every === 0 ? (
            <text
              key={`${label} ${index.toString()}`}
              x={scale.x(index)}
              y={HEIGHT - MARGIN.bottom + 18}
              textAnchor="middle"
            >
              {label.length > 12 ? `${label.slice(0, 11)}…` : label}
            </text>
          ) : null,
        )}
      </svg>
    </figure>
  );
}

interface Scale {
  readonly step: number;
  readonly ticks: readonly number[];
  x(index: number): number;
  y(value: number): number;
}

function createScale(points: readonly Point[]): Scale {
  const values = points.map(({ value }) => value);
  const low = Math.min(0, ...values);
  const high = Math.max(0, ...values);
  const unit = niceStep((high - low || 1) / 4);
  const bottom = Math.floor(low / unit) * unit;
  const top = Math.max(Math.ceil(high / unit) * unit, bottom + unit);
  const step = (WIDTH - MARGIN.left - MARGIN.right) / Math.max(1, points.length);
  const height = HEIGHT - MARGIN.top - MARGIN.bottom;
  const count = Math.round((top - bottom) / unit);
  return {
    step,
    ticks: Array.from({ length: count + 1 }, (_, index) => bottom + index * unit),
    x: (index) => MARGIN.left + step * (index + 0.5),
    y: (value) => MARGIN.top + (height * (top - value)) / (top - bottom),
  };
}

/** 1, 2 or 5 times a power of ten. */
function niceStep(rough: number): number {
  const power = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 5, 10].find((each) => each * power >= rough) ?? 10;
  return factor * power;
}

function Bars({ points, scale }: { readonly points: readonly Point[]; readonly scale: Scale }) {
  return points.map(({ label, value }, index) => (
    <rect
      key={`${label} ${index.toString()}`}
      className="c1"
      rx="3"
      x={scale.x(index) - scale.step * 0.35}
      width={scale.step * 0.7}
      y={Math.min(scale.y(value), scale.y(0))}
      height={Math.abs(scale.y(value) - scale.y(0))}
    >
      <title>{`${label}: ${value}`}</title>
    </rect>
  ));
}

function Line({ points, scale }: { readonly points: readonly Point[]; readonly scale: Scale }) {
  const path = points.map(({ value }, index) => `${scale.x(index)},${scale.y(value)}`).join(' ');
  return (
    <>
      <polyline className="stroke-1" points={path} />
      {points.map(({ label, value }, index) => (
        <circle
          key={`${label} ${index.toString()}`}
          className="c1"
          cx={scale.x(index)}
          cy={scale.y(value)}
          r="4"
        >
          <title>{`${label}: ${value}`}</title>
        </circle>
      ))}
    </>
  );
}

const describeChart = (title: string, unit: string, points: readonly Point[]) =>
  `${title}: ${points.map(({ label, value }) => `${label} ${value}${unit && ` ${unit}`}`).join(', ')}`;

/** A chart of the arguments that a model sent. */
export const ChartView = ({ args }: { readonly args: JsonObject }) => (
  <Chart {...readChart(args)} />
);

interface Table {
  readonly title: string;
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

/** Reads what a model sent; anything else than a table becomes an empty one. */
export function readTable({ title, columns, rows }: JsonObject): Table {
  return {
    title: typeof title === 'string' ? title : '',
    columns: toList(columns).map(toCell),
    rows: toList(rows).map((row) => toList(row).map(toCell)),
  };
}

const toList = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
const toCell = (value: unknown): string =>
  value === null || value === undefined
    ? ''
    : typeof value === 'object'
      ? JSON.stringify(value)
      : String(value);

function TableView({ title, columns, rows }: Table) {
  return (
    <figure>
      {title && <figcaption className="strong">{title}</figcaption>}
      <DataTable>
        <thead>
          <tr>
            {columns.map((column, index) => (
              <th key={index} scope="col">
                {column}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={index}>
              {columns.map((column, position) => (
                <td key={`${column} ${position.toString()}`}>{row[position] ?? ''}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </DataTable>
    </figure>
  );
}

/** A table of the arguments that a model sent. */
export const TableActionView = ({ args }: { readonly args: JsonObject }) => (
  <TableView {...readTable(args)} />
);
