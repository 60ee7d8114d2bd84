import { median } from '../../parts/median.ts';
import type { Load, LoadOptions } from '../load/send-turns.ts';
import type { Target } from '../load/target.ts';
import type { Scene } from '../scene.ts';
import { type Series, seriesOf, sideBySide } from './side-by-side.ts';

export interface Throughput {
  readonly name: string;
  readonly concurrency: number;
  readonly turnsPerSecond: number;
  /** Turns per second beside each floor's in the same round. */
  readonly toFloor: number;
  readonly toLeanFloor: number;
  readonly cpuMs: number;
  readonly cpuToFloor: number;
  readonly cpuToLeanFloor: number;
  /** Share of one core the load generator took: near 1, it is what is measured. */
  readonly loadShare: number;
  readonly megabytes: number;
}

/** Turns per second and processor time of a turn, of both floors and of the host. */
export async function measureThroughput(
  { floor, leanFloor, host }: Scene,
  loads: readonly LoadOptions[],
  rounds: number,
): Promise<Throughput[]> {
  const all = await sideBySide([floor, leanFloor, host], loads, rounds);
  return all.map((series) => summary(series, all, { floor, leanFloor }));
}

function summary(
  { target, load, rounds }: Series,
  all: readonly Series[],
  { floor, leanFloor }: Pick<Scene, 'floor' | 'leanFloor'>,
): Throughput {
  const beside = (other: Target, figure: (load: Load) => number) => {
    const others = seriesOf(all, other, load).rounds;
    return median(rounds.map((one, i) => figure(one) / figure(others[i] as Load)));
  };
  const over = (figure: (load: Load) => number) => median(rounds.map(figure));
  return {
    name: target.name,
    concurrency: load.concurrency,
    turnsPerSecond: over(rateOf),
    toFloor: beside(floor, rateOf),
    toLeanFloor: beside(leanFloor, rateOf),
    cpuMs: over(cpuOf),
    cpuToFloor: beside(floor, cpuOf),
    cpuToLeanFloor: beside(leanFloor, cpuOf),
    loadShare: over(({ ownShare }) => ownShare),
    megabytes: target.server.rssMegabytes(),
  };
}

const rateOf = ({ answers, seconds }: Load) => answers.length / seconds;
const cpuOf = ({ cpuMsPerTurn }: Load) => cpuMsPerTurn;
