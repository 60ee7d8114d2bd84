import { atLeast, type Figure } from '../parts/figure.ts';
import { median } from '../parts/median.ts';
import type { Load } from './load/load.ts';
import type { Goal, Series } from './report.ts';

/** What has a goal, beside what it is compared with: requests and processor time. */
export function figuresOf(
  all: readonly Series[],
  comparedWith: string,
  goals: readonly Goal[],
): Figure[] {
  const seriesOf = (target: string, query: string) =>
    all.find((one) => one.target === target && one.query === query)?.rounds ?? [];
  return goals.flatMap(({ target, query, atLeast: least }) => {
    const [own, other] = [seriesOf(target, query), seriesOf(comparedWith, query)];
    const compare = (unit: string, of: (load: Load) => number) => ({
      ours: `${median(own.map(of)).toFixed(0)}${unit}`,
      beside: `${comparedWith}: ${median(other.map(of)).toFixed(0)}${unit}`,
      ratio: median(own.map((load, i) => of(load) / of(other[i] ?? load))),
    });
    const rate = compare('/s', ({ perSecond }) => perSecond);
    const cpu = compare(' µs', ({ cpuMicros }) => cpuMicros);
    return [
      { name: `${query}: ${target}`, ...rate, target: atLeast(least, rate.ratio) },
      { name: `${query}: ${target}, processor`, ...cpu },
    ];
  });
}
