import { type Load, type LoadOptions, sendTurns } from '../load/send-turns.ts';
import type { Target } from '../load/target.ts';

/** What one target did under one load, round by round. */
export interface Series {
  readonly target: Target;
  readonly load: LoadOptions;
  readonly rounds: readonly Load[];
}

/**
 * Puts every load on every target in each round, so that whatever else the machine does hits all
 * alike; the order turns round each time.
 */
export async function sideBySide(
  targets: readonly Target[],
  loads: readonly LoadOptions[],
  rounds: number,
): Promise<Series[]> {
  const series = loads.flatMap((load) =>
    targets.map((target) => ({ target, load, rounds: [] as Load[] })),
  );
  for (let round = 0; round < rounds; round++) {
    const order = round % 2 === 0 ? series : series.toReversed();
    for (const { target, load, rounds } of order) rounds.push(await sendTurns(target, load));
  }
  return series;
}

/** The series of one target under one load. */
export function seriesOf(all: readonly Series[], target: Target, load: LoadOptions): Series {
  const found = all.find((one) => one.target === target && one.load === load);
  if (!found) throw new Error(`${target.name} was not measured`);
  return found;
}
