import { median } from '../../parts/median.ts';
import type { Load, LoadOptions } from '../load/send-turns.ts';
import type { Scene } from '../scene.ts';
import { type Series, seriesOf, sideBySide } from './side-by-side.ts';

export interface Streams {
  readonly name: string;
  readonly seconds: number;
  /** Its time beside the model's own in the same round. */
  readonly toOwn: number;
  readonly bytesPerToken: number;
  /** Processor time of one stream. */
  readonly cpuMs: number;
  readonly loadShare: number;
  readonly megabytes: number;
}

/** Many streams at once: of the model read directly, of the floor and of the host. */
export async function measureStreams(
  { stub, floor, host }: Scene,
  load: LoadOptions,
  rounds: number,
): Promise<Streams[]> {
  const all = await sideBySide([stub, floor, host], [load], rounds);
  const own = seriesOf(all, stub, load).rounds;
  return all.map((series) => summary(series, own));
}

function summary({ target, rounds }: Series, own: readonly Load[]): Streams {
  const over = (figure: (load: Load) => number) => median(rounds.map(figure));
  return {
    name: target.name,
    seconds: over(({ seconds }) => seconds),
    toOwn: median(rounds.map(({ seconds }, i) => seconds / (own[i]?.seconds ?? 0))),
    bytesPerToken: over(bytesPerToken),
    cpuMs: over(({ cpuMsPerTurn }) => cpuMsPerTurn),
    loadShare: over(({ ownShare }) => ownShare),
    megabytes: target.server.rssMegabytes(),
  };
}

function bytesPerToken({ answers, tokens }: Load): number {
  return answers.reduce((sum, { bytes }) => sum + bytes, 0) / tokens;
}
