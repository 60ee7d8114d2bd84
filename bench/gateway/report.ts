import { median } from '../parts/median.ts';
import type { Load } from './load/load.ts';

/** What one target did with one query, round by round. */
export interface Series {
  readonly target: string;
  readonly query: string;
  readonly rounds: readonly Load[];
}

export interface Goal {
  readonly target: string;
  readonly query: string;
  /** Times the requests per second of what it is compared with. */
  readonly atLeast: number;
}

const line = (...cells: readonly string[]) => console.log(`| ${cells.join(' | ')} |`);

/** Prints every series beside the one it is compared with, in the same round each time. */
export function printSeries(
  all: readonly Series[],
  comparedWith: string,
  goals: readonly Goal[],
): void {
  const head = ['requests', 'per second', `× ${comparedWith}`, 'target', 'CPU a request', '× CPU'];
  line(...head, 'asking took');
  line(...[...head, ''].map(() => '---'));
  for (const series of all) {
    const other = all.find((one) => one.target === comparedWith && one.query === series.query);
    const beside = (figure: (load: Load) => number) =>
      median(series.rounds.map((load, i) => figure(load) / figure(other?.rounds[i] ?? load)));
    const over = (figure: (load: Load) => number) => median(series.rounds.map(figure));
    const ratio = beside(({ perSecond }) => perSecond);
    line(
      `${series.query}: ${series.target}`,
      over(({ perSecond }) => perSecond).toFixed(0),
      ratio.toFixed(2),
      verdict(series, ratio, goals),
      `${over(({ cpuMicros }) => cpuMicros).toFixed(0)} µs`,
      beside(({ cpuMicros }) => cpuMicros).toFixed(2),
      `${Math.round(over(({ ownShare }) => ownShare) * 100)} % of a core`,
    );
  }
}

function verdict({ target, query }: Series, ratio: number, goals: readonly Goal[]): string {
  const goal = goals.find((one) => one.target === target && one.query === query);
  if (!goal) return '';
  return `${ratio >= goal.atLeast ? 'met' : 'MISSED'}: ≥ ${goal.atLeast}`;
}
