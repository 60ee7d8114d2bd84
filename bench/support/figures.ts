import { arch, cpus, loadavg, totalmem, type } from 'node:os';

/** A line in the table of all benchmarks. */
export interface Figure {
  /** What was measured, and in what unit. */
  readonly name: string;
  readonly ours: string;
  /** What ran for comparison, and its figure. */
  readonly beside?: string;
  readonly ratio?: number;
  readonly target?: Target | undefined;
}

interface Target {
  readonly isMet: boolean;
  readonly text: string;
}

export const atLeast = (least: number, ratio: number, wanted = ''): Target => ({
  isMet: ratio >= least,
  text: `≥ ${least}${wanted}`,
});

export const atMost = (most: number, ratio: number, unit = ''): Target => ({
  isMet: ratio <= most,
  text: `≤ ${most}${unit}`,
});

export const formatTarget = ({ isMet, text }: Target): string =>
  `${isMet ? 'met' : 'MISSED'}: ${text}`;

/** Sends the figures to `npm run bench`, if that started this process. */
export async function reportFigures(figures: readonly Figure[]): Promise<void> {
  if (!process.send) return;
  await new Promise((resolve) => process.send?.({ figures }, resolve));
}

/** Formats the figures of one benchmark as a Markdown table. */
export function formatFigures(title: string, figures: readonly Figure[]): string {
  return formatTable([[title, 'ours', 'compared with', 'ratio', 'target'], ...figures.map(toRow)]);
}

export function toRow({ name, ours, beside = '', ratio, target }: Figure): readonly string[] {
  const digits = (ratio ?? 0) < 10 ? 2 : 0;
  return [name, ours, beside, ratio?.toFixed(digits) ?? '', target ? formatTarget(target) : ''];
}

/** Formats a Markdown table; the first row is its head. */
export function formatTable([head = [], ...rows]: readonly (readonly string[])[]): string {
  const lines = [head, head.map(() => '---'), ...rows];
  return lines.map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

export const median = (values: readonly number[]): number => quantile(values, 0.5);

/** The value below which this share of the values lies. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

/** Describes the machine and its load. */
export function describeMachine(): string {
  const memory = `${Math.round(totalmem() / 2 ** 30)} GB`;
  const cores = `${cpus().length} × ${cpus()[0]?.model.trim() || arch()}`;
  return `${cores}, ${memory}, ${type()}, Node ${process.versions.node}; its load before was ${readLoad()}`;
}

export const readLoad = (): string => loadavg()[0]?.toFixed(1) ?? '';
