// Drives a host with a steady mix of requests and prints how its memory develops, for 30 minutes and with 50 requests a second,
// or as the arguments say: npm run bench:soak -- <minutes> <requests per second>
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { generateSigner, mintAuthInvocation } from '@sibyl/ucan';
import { type ServerProcess, startServer } from './support/server-process.ts';

const MANY = '100000000';
const USERS = 32;
/** More often in short runs, so that a line can be fitted. */
const SAMPLES = 180;
const LONGEST_SAMPLE_MS = 10_000;
/** Samples from one full collection to the next. */
const SAMPLES_PER_COLLECTION = 10;
/** The share of the time that counts as warm-up: the compiler and the caches are still busy. */
const WARM_UP = 1 / 3;

const minutes = Number(process.argv[2] ?? 30);
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
  /** Of the heap after a full collection; measured less often, since it takes time and changes the curve. */
  readonly live?: number;
}

const HOST_ENV = {
  PORT: '0',
  MODEL: 'openai-compatible/stub',
  LOG_LEVEL: 'warn',
  NODE_ENV: 'production',
  RATE_LIMIT_PER_MINUTE: MANY,
  RATE_LIMIT_ANONYMOUS_PER_MINUTE: MANY,
  TURNS_PER_USER: MANY,
};

const columns = ['rss', 'anonymous', 'heapTotal', 'heapUsed', 'external'] as const;

async function main(): Promise<void> {
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-soak-'));
  const model = await startServer(new URL('./servers/model.ts', import.meta.url), {
    args: [JSON.stringify({ tokens: 20, gapMs: 0 })],
  });
  const host = await startServer(new URL('./servers/host.ts', import.meta.url), {
    env: { ...HOST_ENV, DATA_DIR: dataDir, MODEL_BASE_URL: model.url },
  });
  try {
    const load = new SteadyLoad(host.url, host.did ?? '');
    const samples = await takeSamples(host, load);
    await load.stop();
    printSlopes(samples.filter(({ minute }) => minute >= minutes * WARM_UP));
    if (load.failures === 0) return;
    console.log(`${load.failures} requests failed: ${load.lastFailure}`);
    process.exitCode = 1;
  } finally {
    await host.stop();
    await model.stop();
    rmSync(dataDir, { recursive: true, force: true });
  }
}

async function takeSamples(host: ServerProcess, load: SteadyLoad): Promise<Sample[]> {
  const startedAt = performance.now();
  const samples: Sample[] = [];
  console.log(`| minute | answers | ${columns.map((name) => `${name} MB`).join(' | ')} |`);
  console.log(`|${'---|'.repeat(columns.length + 2)}`);
  const sampleMs = Math.min(LONGEST_SAMPLE_MS, (minutes * 60_000) / SAMPLES);
  while (performance.now() - startedAt < minutes * 60_000) {
    await sleep(sampleMs);
    const minute = (performance.now() - startedAt) / 60_000;
    const sample = await takeSample(host, { minute, answers: load.answers, count: samples.length });
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

async function takeSample(
  host: ServerProcess,
  { count, ...fields }: Pick<Sample, 'minute' | 'answers'> & { readonly count: number },
): Promise<Sample> {
  const figures = await measureMemory(host);
  if (count % SAMPLES_PER_COLLECTION !== 0) return { ...fields, ...figures };
  const { heapUsed } = await host.memoryUsage('after-collection');
  return { ...fields, ...figures, live: heapUsed / 1024 / 1024 };
}

async function measureMemory(host: ServerProcess) {
  const { rss, heapTotal, heapUsed, external } = await host.memoryUsage();
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
  console.log('\nSlope after warm-up, in MB per hour:');
  for (const name of [...columns, 'live'] as const) {
    const points = samples.flatMap((sample) => {
      const value = sample[name];
      return value === undefined ? [] : [[sample.minute / 60, value] as const];
    });
    console.log(`  ${name}: ${slope(points).toFixed(1)}`);
  }
}

/** The slope of the line of best fit. */
function slope(points: readonly (readonly [number, number])[]): number {
  const mean = (index: 0 | 1) =>
    points.reduce((sum, point) => sum + point[index], 0) / points.length;
  const [x, y] = [mean(0), mean(1)];
  const above = points.reduce((sum, [px, py]) => sum + (px - x) * (py - y), 0);
  const below = points.reduce((sum, [px]) => sum + (px - x) ** 2, 0);
  return above / below;
}

const REQUESTS_PER_SECOND = Number(process.argv[3] ?? 50);
const TURNS_PER_SESSION = 10;
/** A slow host gets fewer requests rather than a growing queue. */
const MAX_RUNNING = 200;
const MESSAGE = 'What does the almanac say about the weather on the coast tomorrow?';

/** Shorter than tokens live. */
const RENEW_MS = 4 * 60_000;

/** A user, who signs a new token every few minutes. */
class User {
  private readonly signer = generateSigner();
  private readonly audience: string;
  private signed: { readonly token: string; readonly at: number } | undefined;

  constructor(audience: string) {
    this.audience = audience;
  }

  get token(): string {
    const now = performance.now();
    if (!this.signed || now - this.signed.at > RENEW_MS) {
      const { signer, audience } = this;
      const { ok, error } = mintAuthInvocation({ signer, audience });
      if (error) throw new Error(error.detail);
      this.signed = { token: ok.token, at: now };
    }
    return this.signed.token;
  }
}

interface Chat {
  readonly id: string;
  readonly user: User;
  turns: number;
}

/** Sends a steady mix of requests: of ten, five JSON turns, two streamed ones, two lists and one history. */
class SteadyLoad {
  answers = 0;
  failures = 0;
  lastFailure = '';
  private sent = 0;
  private readonly url: string;
  private readonly users: readonly User[];
  private readonly idle: Chat[] = [];
  private readonly running = new Set<Promise<void>>();
  private readonly timer: NodeJS.Timeout;

  constructor(url: string, audience: string) {
    this.url = url;
    this.users = Array.from({ length: USERS }, () => new User(audience));
    this.timer = setInterval(() => this.sendNext(), 1000 / REQUESTS_PER_SECOND);
  }

  async stop(): Promise<void> {
    clearInterval(this.timer);
    await Promise.all(this.running);
  }

  private sendNext(): void {
    if (this.running.size >= MAX_RUNNING) return;
    const one = this.sendOne(this.sent++).catch((error) => {
      this.failures += 1;
      this.lastFailure = String(error);
    });
    this.running.add(one);
    void one.then(() => this.running.delete(one));
  }

  private async sendOne(number: number): Promise<void> {
    const chat = this.idle.shift() ?? (await this.open(number));
    const kind = number % 10;
    if (kind < 7) {
      const body = { message: MESSAGE, stream: kind >= 5 };
      await this.send(chat.user, { method: 'POST', path: `/messages/${chat.id}`, body });
      chat.turns += 1;
    } else {
      const path = kind < 9 ? '/sessions' : `/messages/${chat.id}`;
      await this.send(chat.user, { method: 'GET', path });
    }
    if (chat.turns < TURNS_PER_SESSION) this.idle.push(chat);
    else await this.send(chat.user, { method: 'DELETE', path: `/sessions/${chat.id}` });
    this.answers += 1;
  }

  private async open(number: number): Promise<Chat> {
    const user = this.users[number % USERS] as User;
    const request = { method: 'POST', path: '/sessions', body: { title: 'Soak' } };
    const { sessionId } = JSON.parse(await this.send(user, request));
    return { id: sessionId, user, turns: 0 };
  }

  private async send(
    { token }: User,
    { method, path, body }: { method: string; path: string; body?: object },
  ): Promise<string> {
    const response = await fetch(this.url + path, {
      method,
      headers: {
        authorization: `Bearer ${token}`,
        'x-auth-type': 'ucan',
        'content-type': 'application/json',
      },
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text;
  }
}

await main();
