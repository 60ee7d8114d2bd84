// What a host with default limits does when users send far more turns than it can execute: 600 new turns a second for 45 s,
// or what the arguments say: npm run bench:overload -- <turns per second> <seconds>
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { get } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { Load, Outcome, Target } from './overload/generator.ts';
import { describeMachine, quantile } from './support/figures.ts';
import { type ServerProcess, startServer } from './support/server-process.ts';

const [perSecond = 600, seconds = 45] = process.argv.slice(2).map(Number);
const USERS = 3_000;
const PROBE_EVERY_MS = 1_000;
/** As liveness probes of Kubernetes would be at most. */
const PROBE_LIMIT_MS = 2_000;
const REFUSAL_LIMIT_MS = 1_000;
const RECOVERY_LIMIT_MS = 15_000;
/** A turn is normal again if it takes at most so many times as long as before. */
const NORMAL = 3;
/** An answer of 20 tokens in 0.4 s. */
const MODEL = { tokens: 20, gapMs: 20 };

let hasFailed = false;

async function main(): Promise<void> {
  console.log(`${perSecond} turns a second for ${seconds} s, on ${describeMachine()}\n`);
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-overload-'));
  const model = await startServer(new URL('./servers/model.ts', import.meta.url), {
    args: [JSON.stringify(MODEL)],
  });
  const env = {
    ...{ PORT: '0', LOG_LEVEL: 'fatal', NODE_ENV: 'production', DATA_DIR: dataDir },
    ...{ MODEL: 'openai-compatible/stub', MODEL_BASE_URL: model.url },
  };
  const host = await startServer(new URL('./servers/host.ts', import.meta.url), { env });
  const generator = fork(new URL('./overload/generator.ts', import.meta.url));
  try {
    await overload(host, generator, dataDir);
  } finally {
    generator.kill();
    await host.stop();
    await model.stop();
    rmSync(dataDir, { recursive: true, force: true });
  }
  process.exitCode = hasFailed ? 1 : 0;
}

async function overload(host: ServerProcess, generator: ChildProcess, dataDir: string) {
  await ask(generator, { target: { url: host.url, audience: host.did ?? '', users: USERS } });
  const calm = await run(generator, { perSecond: 5, seconds: 5 });
  const normalMs = quantile(toTimes(calm), 0.95);
  console.log(`before: ${calm.length} turns, p95 ${normalMs.toFixed(0)} ms\n`);

  const probes = new Probes(host.url);
  const cpuBefore = host.cpuMs();
  const startedAt = performance.now();
  const outcomes = await run(generator, { perSecond, seconds });
  const drainedMs = performance.now() - startedAt - seconds * 1000;
  const recoveredMs = drainedMs + (await measureRecovery(generator, normalMs * NORMAL));
  await probes.stop();
  const cores = (host.cpuMs() - cpuBefore) / (performance.now() - startedAt);
  console.log(
    `the host used ${cores.toFixed(2)} cores and has ${host.rssMegabytes().toFixed(0)} MB`,
  );
  reportProbes(probes);
  reportTurns(outcomes, dataDir);
  report(
    `back to normal after ${(recoveredMs / 1000).toFixed(1)} s`,
    recoveredMs <= RECOVERY_LIMIT_MS,
  );
}

/** How long it takes until turns are accepted and as fast as before. */
async function measureRecovery(generator: ChildProcess, limitMs: number): Promise<number> {
  const startedAt = performance.now();
  for (;;) {
    const elapsedMs = performance.now() - startedAt;
    if (elapsedMs > 4 * RECOVERY_LIMIT_MS) return elapsedMs;
    const outcomes = await run(generator, { perSecond: 5, seconds: 1 });
    if (outcomes.every(({ status, ms }) => status === 200 && ms <= limitMs)) return elapsedMs;
  }
}

function reportProbes({ times }: Probes): void {
  const slow = times.filter((ms) => ms > PROBE_LIMIT_MS).length;
  const figures = `p50 ${format(times, 0.5)}, slowest ${format(times, 1)}`;
  report(
    `${times.length} probes over new connections, ${figures}, ${slow} above ${PROBE_LIMIT_MS} ms`,
    slow === 0,
  );
}

/** What neither was answered nor refused was accepted and is not known to be stored. */
function reportTurns(outcomes: readonly Outcome[], dataDir: string): void {
  const answered = outcomes.filter(({ status }) => status === 200);
  const isClean = ({ status, code, hasRetryAfter }: Outcome) =>
    (status === 429 || (status === 503 && code !== 'store_unavailable')) && hasRetryAfter;
  const refused = outcomes.filter(isClean);
  const stored = countStored(dataDir);
  const wanted = perSecond * seconds;
  console.log(`${outcomes.length} of ${wanted} turns sent: ${describe(outcomes)}`);
  console.log(
    `answers: p50 ${format(toTimes(answered), 0.5)}, slowest ${format(toTimes(answered), 1)}`,
  );
  const failed = outcomes.length - answered.length - refused.length;
  report(`${answered.length} turns accepted and answered, ${failed} failed`, failed === 0);
  const unfinished = stored.all - stored.finished;
  report(`${stored.finished} turns stored as finished, ${unfinished} otherwise`, unfinished === 0);
  const times = toTimes(refused);
  const slow = times.filter((ms) => ms > REFUSAL_LIMIT_MS).length;
  report(
    `${refused.length} turns refused with 429 or 503 and Retry-After, p50 ${format(times, 0.5)}, ` +
      `p99 ${format(times, 0.99)}, slowest ${format(times, 1)}, ${slow} above ${REFUSAL_LIMIT_MS} ms`,
    slow === 0,
  );
}

function describe(outcomes: readonly Outcome[]): string {
  const counts = new Map<string, number[]>();
  for (const { status, code = '', ms } of outcomes) {
    const key = `${status} ${code}`.trim();
    const times = counts.get(key) ?? [];
    times.push(ms);
    counts.set(key, times);
  }
  const describeTimes = (times: readonly number[]) =>
    `${times.length} (p99 ${format(times, 0.99)}, slowest ${format(times, 1)})`;
  return [...counts].map(([key, times]) => `${describeTimes(times)} × ${key}`).join(', ');
}

function countStored(dataDir: string): { all: number; finished: number } {
  const database = new DatabaseSync(join(dataDir, 'sibyl.db'), { readOnly: true });
  const select = "select count(*) as 'all', sum(status = 'finished') as finished from runs";
  const row = database.prepare(select).get() as { all: number; finished: number };
  database.close();
  return row;
}

function report(text: string, isMet: boolean): void {
  console.log(`${isMet ? 'PASS' : 'FAIL'}: ${text}`);
  hasFailed ||= !isMet;
}

const toTimes = (outcomes: readonly Outcome[]) => outcomes.map(({ ms }) => ms);

const format = (times: readonly number[], share: number) =>
  `${quantile(times, share).toFixed(0)} ms`;

/** Asks `/health` every second, each time on a new connection. */
class Probes {
  readonly times: number[] = [];
  private readonly running = new Set<Promise<void>>();
  private readonly timer: NodeJS.Timeout;

  constructor(url: string) {
    this.timer = setInterval(() => {
      const probe = this.send(`${url}/health`).finally(() => this.running.delete(probe));
      this.running.add(probe);
    }, PROBE_EVERY_MS);
  }

  async stop(): Promise<void> {
    clearInterval(this.timer);
    await Promise.all(this.running);
  }

  private async send(url: string): Promise<void> {
    const startedAt = performance.now();
    const isAlive = await new Promise((resolve) => {
      get(url, { agent: false }, (response) => {
        response.resume().on('end', () => resolve(response.statusCode === 200));
      }).on('error', () => resolve(false));
    });
    this.times.push(isAlive ? performance.now() - startedAt : Number.POSITIVE_INFINITY);
  }
}

async function ask(
  generator: ChildProcess,
  message: { target: Target } | { load: Load },
): Promise<unknown> {
  generator.send(message);
  const ended = once(generator, 'exit').then(([code]) => {
    throw new Error(`The generator exited with ${code}`);
  });
  const [reply] = await Promise.race([once(generator, 'message'), ended]);
  return reply;
}

const run = async (generator: ChildProcess, load: Load) =>
  (await ask(generator, { load })) as readonly Outcome[];

await main();
