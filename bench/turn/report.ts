import { atLeast, atMost, type Figure, formatTarget } from '../support/figures.ts';
import type { FirstToken, Streams, Throughput } from './measure.ts';

/** Ratio of turns per second to the floor, with several at once. */
const LEAST_RATE = 0.75;
/** Ratio of the delay before the first token to the floor's, with several at once. */
const MOST_FIRST_TOKEN = 2.5;
/** Milliseconds that the first token of a turn that runs alone comes later than at the floor. */
const MOST_FIRST_TOKEN_MS = 2;
/** Ratio of the time of many streams at once to the model's own. */
const MOST_STREAM_TIME = 1.1;
/** Bytes on the wire per token. */
const MOST_BYTES = 120;

const printLine = (...cells: readonly string[]) => console.log(`| ${cells.join(' | ')} |`);

function printHead(...cells: readonly string[]): void {
  printLine(...cells);
  printLine(...cells.map(() => '---'));
}

const percent = (share: number) => `${Math.round(share * 100)} %`;
const formatVerdict = (isMet: boolean, target: string) => `${isMet ? 'met' : 'MISSED'}: ${target}`;

export function printThroughput(title: string, figures: readonly Throughput[]): void {
  printHead(
    title,
    'turns/s',
    '× floor (fetch)',
    '× floor (http)',
    '× floor (durable)',
    'target',
    'CPU per turn',
    '× floor (fetch)',
    '× floor (http)',
    'load generator',
    'memory after',
  );
  for (const figure of figures) {
    printLine(
      `${figure.concurrency} at once: ${figure.name}`,
      figure.turnsPerSecond.toFixed(0),
      figure.toFloor.toFixed(2),
      figure.toLeanFloor.toFixed(2),
      figure.toDurableFloor.toFixed(2),
      formatRateVerdict(figure),
      `${figure.cpuMs.toFixed(2)} ms`,
      figure.cpuToFloor.toFixed(1),
      figure.cpuToLeanFloor.toFixed(1),
      `${percent(figure.loadShare)} of a core`,
      `${figure.megabytes.toFixed(0)} MB`,
    );
  }
  console.log('');
}

function formatRateVerdict({ name, concurrency, toFloor }: Throughput): string {
  if (name !== 'host' || concurrency === 1) return '';
  return formatVerdict(toFloor >= LEAST_RATE, `≥ ${LEAST_RATE}`);
}

export function printFirstToken(figures: readonly FirstToken[]): void {
  printHead(
    'time to first token, ms',
    "the model's own",
    'floor (fetch) adds',
    'floor (http) adds',
    'host adds',
    'host × floor (fetch)',
    'target',
  );
  for (const { concurrency, share, own, floor, leanFloor, host } of figures) {
    printLine(
      `${concurrency} at once, p${share * 100}`,
      own.toFixed(1),
      floor.toFixed(1),
      leanFloor.toFixed(1),
      host.toFixed(1),
      (host / floor).toFixed(1),
      formatTarget(targetFirstToken({ concurrency, floor, host })),
    );
  }
  console.log('');
}

export function printStreams(title: string, figures: readonly Streams[]): void {
  printHead(
    title,
    'seconds',
    "× the model's own",
    'bytes per token',
    'targets',
    'CPU per stream',
    'load generator',
    'memory after',
  );
  for (const { name, seconds, toOwn, bytesPerToken, cpuMs, loadShare, megabytes } of figures) {
    const isMet = toOwn <= MOST_STREAM_TIME && bytesPerToken <= MOST_BYTES;
    printLine(
      name,
      seconds.toFixed(2),
      toOwn.toFixed(2),
      bytesPerToken.toFixed(0),
      name === 'host' ? formatVerdict(isMet, `≤ ${MOST_STREAM_TIME} ×, ≤ ${MOST_BYTES} bytes`) : '',
      `${cpuMs.toFixed(1)} ms`,
      `${percent(loadShare)} of a core`,
      `${megabytes.toFixed(0)} MB`,
    );
  }
  console.log('');
}

/** Turns per second and processor time per turn, compared with the floor on fetch; `mostCpuMs` is of a turn that runs alone. */
export function toThroughputFigures(
  title: string,
  all: readonly Throughput[],
  mostCpuMs?: number,
): Figure[] {
  return all
    .filter(({ name }) => name === 'host')
    .flatMap((host) => {
      const find = (wanted: string) =>
        all.find(({ name, concurrency }) => name === wanted && concurrency === host.concurrency);
      const floor = find('floor on fetch');
      const durableFloor = find('floor with durable turns');
      const where = `${title}, ${host.concurrency} at once`;
      const hasCpuTarget = host.concurrency === 1 && mostCpuMs !== undefined;
      return [
        {
          name: `${where}: turns`,
          ours: `${host.turnsPerSecond.toFixed(0)}/s`,
          beside: `${floor?.name}: ${floor?.turnsPerSecond.toFixed(0)}/s`,
          ratio: host.toFloor,
          ...(host.concurrency > 1 && { target: atLeast(LEAST_RATE, host.toFloor) }),
        },
        {
          name: `${where}: turns`,
          ours: `${host.turnsPerSecond.toFixed(0)}/s`,
          beside: `${durableFloor?.name}: ${durableFloor?.turnsPerSecond.toFixed(0)}/s`,
          ratio: host.toDurableFloor,
        },
        {
          name: `${where}: processor per turn`,
          ours: `${host.cpuMs.toFixed(2)} ms`,
          beside: `${floor?.name}: ${floor?.cpuMs.toFixed(2)} ms`,
          ratio: host.cpuToFloor,
          ...(hasCpuTarget && { target: atMost(mostCpuMs, host.cpuMs, ' ms') }),
        },
      ];
    });
}

/** The delay that a server adds before the first token. */
export const toFirstTokenFigures = (all: readonly FirstToken[]): Figure[] =>
  all.map(({ concurrency, share, floor, host }) => ({
    name: `added before the first token, ${concurrency} at once, p${share * 100}`,
    ours: `${host.toFixed(1)} ms`,
    beside: `floor on fetch: ${floor.toFixed(1)} ms`,
    ratio: host / floor,
    target: targetFirstToken({ concurrency, floor, host }),
  }));

function targetFirstToken({
  concurrency,
  floor,
  host,
}: Omit<FirstToken, 'share' | 'own' | 'leanFloor'>) {
  if (concurrency > 1) return atMost(MOST_FIRST_TOKEN, host / floor);
  return atMost(MOST_FIRST_TOKEN_MS, host - floor, ' ms more than the floor');
}

/** Many streams at once, compared with the model read directly. */
export function toStreamFigures(title: string, all: readonly Streams[]): Figure[] {
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
        ours: `${bytesPerToken.toFixed(0)} bytes per token`,
        beside: `${own?.name}: ${own?.bytesPerToken.toFixed(0)} bytes per token`,
        ratio: bytesPerToken / (own?.bytesPerToken ?? 0),
        target: atMost(MOST_BYTES, bytesPerToken, ' bytes'),
      },
    ]);
}
