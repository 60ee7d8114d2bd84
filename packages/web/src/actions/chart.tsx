import type { JsonObject } from '@sibyl/client';
import { useEffect, useRef, useState } from 'react';
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

const HEIGHT = 220;
/** Until the width of the place is known. */
const FIRST_WIDTH = 512;
const MARGIN = { top: 20, right: 4, bottom: 24 };
/** Below which the label of a point, or the value of a bar, would touch the next one. */
const LABEL_WIDTH = 64;
const VALUE_WIDTH = 36;
const LETTER_WIDTH = 7;
const MAX_LETTERS = 12;

interface ChartProps extends ChartData {
  /** Writes a value; by default as a number. */
  readonly format?: (value: number) => string;
  /** For screen readers; by default all points. */
  readonly label?: string;
}

/** Draws the points as wide as the place, so that text keeps its size; screen readers get a text. */
export function Chart({ format = formatNumber, label, ...data }: ChartProps) {
  const { title, kind, unit, points } = data;
  const { place, width } = useWidth();
  const scale = createScale(points, width, format);
  const Shape = kind === 'bar' ? Bars : Line;
  return (
    <figure className="card chart">
      <figcaption>
        {title} {unit && <span className="quiet small">{unit}</span>}
      </figcaption>
      <svg
        ref={place}
        viewBox={`0 0 ${width} ${HEIGHT}`}
        role="img"
        aria-label={label ?? describeChart(data)}
      >
        {scale.ticks.map((tick) => (
          <g key={tick}>
            <line
              className="g"
              x1={scale.left}
              x2={width - MARGIN.right}
              y1={scale.y(tick)}
              y2={scale.y(tick)}
            />
            <text x={scale.left - 8} y={scale.y(tick) + 4} textAnchor="end">
              {format(tick)}
            </text>
          </g>
        ))}
        <Shape points={points} scale={scale} format={format} />
        <Labels points={points} scale={scale} />
      </svg>
    </figure>
  );
}

/** The width of an element in pixels. */
function useWidth() {
  const place = useRef<SVGSVGElement>(null);
  const [width, setWidth] = useState(FIRST_WIDTH);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => {
      if (entry) setWidth(Math.max(160, Math.round(entry.contentRect.width)));
    });
    if (place.current) watch.observe(place.current);
    return () => watch.disconnect();
  }, []);
  return { place, width };
}

interface ShapeProps {
  readonly points: readonly Point[];
  readonly scale: Scale;
}

/** All labels if each has room below its point, otherwise as many as fit, the last one included. */
function Labels({ points, scale }: ShapeProps) {
  const isDense = scale.step < LABEL_WIDTH;
  const letters = isDense ? MAX_LETTERS : Math.floor(scale.step / LETTER_WIDTH);
  const longest = Math.min(letters, Math.max(...points.map(({ label }) => label.length)));
  // The last one moves aside by up to half of its width.
  const every = isDense ? Math.ceil((1.5 * LETTER_WIDTH * longest + 8) / scale.step) : 1;
  const truncate = (label: string) =>
    label.length > letters ? `${label.slice(0, letters - 1)}…` : label;
  /** The last one ends with the plot. */
  const place = (index: number, label: string) =>
    Math.min(scale.x(index), scale.right - (LETTER_WIDTH * truncate(label).length) / 2);
  return points.map(({ label }, index) =>
    (points.length - 1 - index) % every === 0 ? (
      <text
        key={`${label} ${index.toString()}`}
        x={place(index, label)}
        y={HEIGHT - MARGIN.bottom + 18}
        textAnchor="middle"
      >
        {isolate(truncate(label))}
      </text>
    ) : null,
  );
}

/** Text that keeps its own direction. */
const isolate = (text: string): string => `\u2068${text}\u2069`;

interface Scale {
  /** Where the plot begins, beside its values. */
  readonly left: number;
  readonly right: number;
  readonly step: number;
  readonly ticks: readonly number[];
  x(index: number): number;
  y(value: number): number;
}

function createScale(
  points: readonly Point[],
  width: number,
  format: (value: number) => string,
): Scale {
  const values = points.map(({ value }) => value);
  const low = Math.min(0, ...values);
  const high = Math.max(0, ...values);
  const unit = niceStep((high - low || 1) / 4);
  const bottom = Math.floor(low / unit) * unit;
  const top = Math.max(Math.ceil(high / unit) * unit, bottom + unit);
  const count = Math.round((top - bottom) / unit);
  const ticks = Array.from({ length: count + 1 }, (_, index) => bottom + index * unit);
  const letters = Math.max(0, ...ticks.map((tick) => format(tick).length));
  const left = Math.min(width / 3, 12 + LETTER_WIDTH * letters);
  const step = (width - left - MARGIN.right) / Math.max(1, points.length);
  const height = HEIGHT - MARGIN.top - MARGIN.bottom;
  return {
    left,
    right: width - MARGIN.right,
    step,
    ticks,
    x: (index) => left + step * (index + 0.5),
    y: (value) => MARGIN.top + (height * (top - value)) / (top - bottom),
  };
}

/** 1, 2 or 5 times a power of ten. */
function niceStep(rough: number): number {
  const power = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 5, 10].find((each) => each * power >= rough) ?? 10;
  return factor * power;
}

interface BarsProps extends ShapeProps {
  readonly format: (value: number) => string;
}

function Bars({ points, scale, format }: BarsProps) {
  const hasValues = scale.step >= VALUE_WIDTH;
  return points.map(({ label, value }, index) => (
    <g key={`${label} ${index.toString()}`}>
      <rect
        className="c1"
        rx="3"
        x={scale.x(index) - scale.step * 0.35}
        width={scale.step * 0.7}
        y={Math.min(scale.y(value), scale.y(0))}
        height={Math.abs(scale.y(value) - scale.y(0))}
      >
        <title>{`${label}: ${format(value)}`}</title>
      </rect>
      {hasValues && (
        <text
          className="v"
          x={scale.x(index)}
          y={value < 0 ? scale.y(value) + 14 : scale.y(value) - 6}
          textAnchor="middle"
        >
          {format(value)}
        </text>
      )}
    </g>
  ));
}

function Line({ points, scale, format }: BarsProps) {
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
          <title>{`${label}: ${format(value)}`}</title>
        </circle>
      ))}
    </>
  );
}

const describeChart = ({ title, unit, points }: ChartData) =>
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
    <figure className="stack stack-2">
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
