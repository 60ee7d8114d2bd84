import { atLeast, atMost, type Figure } from '../parts/figure.ts';
import type { FirstToken } from './measure/first-token.ts';
import type { Streams } from './measure/streams.ts';
import type { Throughput } from './measure/throughput.ts';
import { LEAST_RATE, MOST_BYTES, MOST_FIRST_TOKEN, MOST_STREAM_TIME } from './targets.ts';

/** Turns per second and processor time of a turn, beside the floor on fetch. */
export function throughputFigures(title: string, all: readonly Throughput[]): Figure[] {
  return all
    .filter(({ name }) => name === 'host')
    .flatMap((host) => {
      const floor = all.find(({ name, concurrency }) => {
        return name === 'floor on fetch' && concurrency === host.concurrency;
      });
      const where = `${title}, ${host.concurrency} at once`;
      return [
        {
          name: `${where}: turns`,
          ours: `${host.turnsPerSecond.toFixed(0)}/s`,
          beside: `${floor?.name}: ${floor?.turnsPerSecond.toFixed(0)}/s`,
          ratio: host.toFloor,
          ...(host.concurrency > 1 && { target: atLeast(LEAST_RATE, host.toFloor) }),
        },
        {
          name: `${where}: processor a turn`,
          ours: `${host.cpuMs.toFixed(2)} ms`,
          beside: `${floor?.name}: ${floor?.cpuMs.toFixed(2)} ms`,
          ratio: host.cpuToFloor,
        },
      ];
    });
}

/** What a server adds to the model's own time to the first token. */
export const firstTokenFigures = (all: readonly FirstToken[]): Figure[] =>
  all.map(({ concurrency, share, floor, host }) => ({
    name: `added before the first token, ${concurrency} at once, p${share * 100}`,
    ours: `${host.toFixed(1)} ms`,
    beside: `floor on fetch: ${floor.toFixed(1)} ms`,
    ratio: host / floor,
    target: atMost(MOST_FIRST_TOKEN, host / floor),
  }));

/** Many streams at once, beside the model read directly. */
export function streamFigures(title: string, all: readonly Streams[]): Figure[] {
  const [own] = all;
  return all
    .filter(({ name }) => name === 'host')
    .flatMap(({ seconds, toOwn, bytesPerToken }) => [
      {
        name: title,
        ours: `${seconds.toFixed(2)} s`,
        beside: `${own?.name}: ${own?.seconds.toFixed(2)} s`,
        ratio: toOwn,
        target: atMost(MOST_STREAM_TIME, toOwn),
      },
      {
        name: `${title}: on the wire`,
        ours: `${bytesPerToken.toFixed(0)} bytes a token`,
        beside: `${own?.name}: ${own?.bytesPerToken.toFixed(0)} bytes a token`,
        ratio: bytesPerToken / (own?.bytesPerToken ?? 0),
        target: atMost(MOST_BYTES, bytesPerToken, ' bytes'),
      },
    ]);
}
