import { median, quantile } from '../../parts/median.ts';
import type { Load, LoadOptions } from '../load/send-turns.ts';
import type { Target } from '../load/target.ts';
import type { Scene } from '../scene.ts';
import { type Series, seriesOf, sideBySide } from './side-by-side.ts';

export interface FirstToken {
  readonly concurrency: number;
  readonly share: number;
  /** Milliseconds of the model, read directly. */
  readonly own: number;
  /** Milliseconds each server adds to that. */
  readonly floor: number;
  readonly leanFloor: number;
  readonly host: number;
}

/** Time to the first token: the model's own, and what floors and host add to it. */
export async function measureFirstToken(
  scene: Scene,
  loads: readonly LoadOptions[],
  rounds: number,
): Promise<FirstToken[]> {
  const { stub, floor, leanFloor, host } = scene;
  const all = await sideBySide([stub, floor, leanFloor, host], loads, rounds);
  const shares = [0.5, 0.95];
  return loads.flatMap((load) => shares.map((share) => summary(scene, load, { all, share })));
}

function summary(
  { stub, floor, leanFloor, host }: Scene,
  load: LoadOptions,
  { all, share }: { all: readonly Series[]; share: number },
): FirstToken {
  const delayOf = (target: Target) => delayIn(seriesOf(all, target, load).rounds, share);
  const own = delayOf(stub);
  return {
    concurrency: load.concurrency,
    share,
    own,
    floor: delayOf(floor) - own,
    leanFloor: delayOf(leanFloor) - own,
    host: delayOf(host) - own,
  };
}

/** Of each round first, so that one bad moment of the machine spoils one round only. */
function delayIn(rounds: readonly Load[], share: number): number {
  const ofRound = ({ answers }: Load) =>
    quantile(
      answers.map(({ firstTokenMs }) => firstTokenMs),
      share,
    );
  return median(rounds.map(ofRound));
}
