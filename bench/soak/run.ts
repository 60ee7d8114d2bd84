// Drives a host with a steady mix of requests and prints how its memory develops: npm run bench:soak -- 30
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { mintTokens } from '../parts/mint-tokens.ts';
import { startServer } from '../parts/server-process.ts';
import { SteadyLoad } from './load.ts';

const MANY = '100000000';
const USERS = 32;
const SAMPLE_MS = 10_000;
/** The share of samples that count as warm-up: the compiler and the caches are still busy. */
const WARM_UP = 1 / 3;

const minutes = Number(process.argv[2] ?? 2);
if (!(minutes > 0)) throw new Error('The first argument is the number of minutes');

interface Sample {
  readonly minute: number;
  readonly answers: number;
  /** Megabytes. */
  readonly rss: number;
  readonly anonymous: number;
  readonly heapTotal: number;
  readonly heapUsed: number;
  readonly external: number;
}

const columns = ['rss', 'anonymous', 'heapTotal', 'heapUsed', 'external'] as const;

const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-soak-'));
const model = await startServer(new URL('../turn/servers/stub.ts', import.meta.url), {
  args: [JSON.stringify({ tokens: 20, gapMs: 0 })],
});
const child = fork(new URL('./servers/host.ts', import.meta.url), {
  env: {
    ...process.env,
    PORT: '0',
    DATA_DIR: dataDir,
    MODEL: 'openai-compatible/stub',
    MODEL_BASE_URL: model.url,
    LOG_LEVEL: 'warn',
    NODE_ENV: 'production',
    RATE_LIMIT_PER_MINUTE: MANY,
    RATE_LIMIT_ANONYMOUS_PER_MINUTE: MANY,
    TURNS_PER_USER: MANY,
  },
});
try {
  const [{ url, did }] = (await once(child, 'message')) as [{ url: string; did: string }];
  const load = new SteadyLoad(url, mintTokens(USERS, did));
  const samples = await takeSamples(child, load);
  await load.stop();
  printSlopes(samples.slice(Math.floor(samples.length * WARM_UP)));
  if (load.failures > 0) {
    console.log(`${load.failures} requests failed: ${load.lastFailure}`);
    process.exitCode = 1;
  }
} finally {
  child.kill();
  await once(child, 'exit');
  await model.stop();
  rmSync(dataDir, { recursive: true, force: true });
}

async function takeSamples(host: ChildProcess, load: SteadyLoad): Promise<Sample[]> {
  const startedAt = performance.now();
  const samples: Sample[] = [];
  console.log(`| minute | answers | ${columns.map((name) => `${name} MB`).join(' | ')} |`);
  console.log(`|${'---|'.repeat(columns.length + 2)}`);
  while (performance.now() - startedAt < minutes * 60_000) {
    await sleep(SAMPLE_MS);
    const minute = (performance.now() - startedAt) / 60_000;
    const sample = { minute, answers: load.answers, ...(await measureMemory(host)) };
    samples.push(sample);
    const cells = [
      minute.toFixed(1),
      sample.answers,
      ...columns.map((name) => sample[name].toFixed(1)),
    ];
    console.log(`| ${cells.join(' | ')} |`);
  }
  return samples;
}

async function measureMemory(host: ChildProcess) {
  host.send('memory');
  const [{ memory }] = (await once(host, 'message')) as [{ memory: NodeJS.MemoryUsage }];
  const { rss, heapTotal, heapUsed, external } = memory;
  const [, kilobytes] =
    /^Anonymous:\s+(\d+)/m.exec(readFileSync(`/proc/${host.pid}/smaps_rollup`, 'utf8')) ?? [];
  const megabytes = (bytes: number) => bytes / 1024 / 1024;
  return {
    rss: megabytes(rss),
    anonymous: Number(kilobytes) / 1024,
    heapTotal: megabytes(heapTotal),
    heapUsed: megabytes(heapUsed),
    external: megabytes(external),
  };
}

function printSlopes(samples: readonly Sample[]): void {
  console.log('\nSlope after warm-up, in MB a minute:');
  for (const name of columns) {
    const points = samples.map((sample) => [sample.minute, sample[name]] as const);
    console.log(`  ${name}: ${slope(points).toFixed(2)}`);
  }
}

/** Of the line that fits best. */
function slope(points: readonly (readonly [number, number])[]): number {
  const mean = (index: 0 | 1) =>
    points.reduce((sum, point) => sum + point[index], 0) / points.length;
  const [x, y] = [mean(0), mean(1)];
  const above = points.reduce((sum, [px, py]) => sum + (px - x) * (py - y), 0);
  const below = points.reduce((sum, [px]) => sum + (px - x) ** 2, 0);
  return above / below;
}
