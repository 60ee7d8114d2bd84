import type { FirstToken } from './measure/first-token.ts';
import type { Streams } from './measure/streams.ts';
import type { Throughput } from './measure/throughput.ts';
import { LEAST_RATE, MOST_BYTES, MOST_FIRST_TOKEN, MOST_STREAM_TIME } from './targets.ts';

const line = (...cells: readonly string[]) => console.log(`| ${cells.join(' | ')} |`);

function head(...cells: readonly string[]): void {
  line(...cells);
  line(...cells.map(() => '---'));
}

const percent = (share: number) => `${Math.round(share * 100)} %`;
const verdict = (isMet: boolean, target: string) => `${isMet ? 'met' : 'MISSED'}: ${target}`;

export function printThroughput(title: string, figures: readonly Throughput[]): void {
  head(
    title,
    'turns/s',
    '× floor (fetch)',
    '× floor (http)',
    'target',
    'CPU a turn',
    '× floor (fetch)',
    '× floor (http)',
    'load generator',
    'memory after',
  );
  for (const figure of figures) {
    line(
      `${figure.concurrency} at once: ${figure.name}`,
      figure.turnsPerSecond.toFixed(0),
      figure.toFloor.toFixed(2),
      figure.toLeanFloor.toFixed(2),
      rateVerdict(figure),
      `${figure.cpuMs.toFixed(2)} ms`,
      figure.cpuToFloor.toFixed(1),
      figure.cpuToLeanFloor.toFixed(1),
      `${percent(figure.loadShare)} of a core`,
      `${figure.megabytes.toFixed(0)} MB`,
    );
  }
  console.log('');
}

function rateVerdict({ name, concurrency, toFloor }: Throughput): string {
  if (name !== 'host' || concurrency === 1) return '';
  return verdict(toFloor >= LEAST_RATE, `≥ ${LEAST_RATE}, 0.5 wanted`);
}

export function printFirstToken(figures: readonly FirstToken[]): void {
  head(
    'time to first token, ms',
    "the model's own",
    'floor (fetch) adds',
    'floor (http) adds',
    'host adds',
    'host × floor (fetch)',
    'target',
  );
  for (const { concurrency, share, own, floor, leanFloor, host } of figures) {
    line(
      `${concurrency} at once, p${share * 100}`,
      own.toFixed(1),
      floor.toFixed(1),
      leanFloor.toFixed(1),
      host.toFixed(1),
      (host / floor).toFixed(1),
      verdict(host <= MOST_FIRST_TOKEN * floor, `≤ ${MOST_FIRST_TOKEN}`),
    );
  }
  console.log('');
}

export function printStreams(title: string, figures: readonly Streams[]): void {
  head(
    title,
    'seconds',
    "× the model's own",
    'bytes a token',
    'targets',
    'CPU a stream',
    'load generator',
    'memory after',
  );
  for (const { name, seconds, toOwn, bytesPerToken, cpuMs, loadShare, megabytes } of figures) {
    const isMet = toOwn <= MOST_STREAM_TIME && bytesPerToken <= MOST_BYTES;
    line(
      name,
      seconds.toFixed(2),
      toOwn.toFixed(2),
      bytesPerToken.toFixed(0),
      name === 'host' ? verdict(isMet, `≤ ${MOST_STREAM_TIME} ×, ≤ ${MOST_BYTES} bytes`) : '',
      `${cpuMs.toFixed(1)} ms`,
      `${percent(loadShare)} of a core`,
      `${megabytes.toFixed(0)} MB`,
    );
  }
  console.log('');
}
