import { spawnSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { generateSigner, mintDelegation } from '@sibyl/ucan';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { scale } from '../../../scripts/test-scale.ts';
import {
  countStatuses,
  LoopbackClient,
  type Reply,
  runConcurrently,
} from './support/loopback-client.js';
import { type HostProcess, runHost, untilListening } from './support/process.js';

const inOneHour = () => Math.floor(Date.now() / 1000) + 3600;
describe('2,000 expensive tokens of fresh keys', () => {
  const TOKENS = 2000;
  const CONCURRENCY = 10;
  /** Of those that are all accepted. */
  const ACCEPTED = scale(TOKENS, 600);
  let dataDir: string;
  let host: HostProcess;
  let url: string;
  let did: string;

  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'sibyl-tokens-'));
    const reporter = join(import.meta.dirname, 'support/report-memory.ts');
    host = runHost({ PORT: '0', DATA_DIR: dataDir }, ['--import', reporter]);
    url = await untilListening(host);
    did = ((await (await fetch(`${url}/.well-known/oracle.json`)).json()) as { did: string }).did;
  }, 120_000);
  afterAll(async () => {
    host.child.kill('SIGKILL');
    await host.ended;
    await rm(dataDir, { recursive: true, force: true });
  });

  const expiration = inOneHour();
  const capabilities = Array.from({ length: 16 }, (_, n) => ({ can: 'a/b', with: `ixo:${n}` }));
  const mint = (fields: Partial<Parameters<typeof mintDelegation>[0]>) => {
    const signer = generateSigner();
    const base = { signer, audience: did, capabilities, expiration };
    const { ok, error } = mintDelegation({ ...base, nonce: `${Math.random()}`, ...fields });
    if (error) throw new Error(error.detail);
    return ok.token;
  };

  /** Two UCANs on which a third rests, up to 8 kB. */
  function withProofs(): string {
    const signer = generateSigner();
    const proofs = [1, 2].map(() => mint({ audience: signer.did }));
    return mint({ signer, proofs });
  }

  /** As many empty byte strings as a UCAN may hold, which take much more in memory than in the token. */
  const withEmptyFacts = () =>
    mint({
      capabilities: [{ can: 'a/b', with: 'ixo:x' }],
      facts: [{ a: Array.from({ length: 235 }, () => new Uint8Array()), b: 'x'.repeat(4000) }],
    });

  /** The same in caveats, which have to be kept. */
  const withCaveats = () => {
    const a = Array.from({ length: 235 }, () => new Uint8Array());
    return mint({ capabilities: [{ can: 'a/b', with: 'ixo:x', nb: { a, b: 'x'.repeat(4000) } }] });
  };

  const kinds = [withProofs, withEmptyFacts, withCaveats];
  const expensive = (n: number) => ({ 'x-ucan-delegation': kinds[n % kinds.length]?.() ?? '' });
  async function readFigures(): Promise<{ rss: number; heapUsed: number; external: number }> {
    const read = () => host.output().match(/figures: .*/g) ?? [];
    const before = read().length;
    host.child.kill('SIGUSR2');
    await expect.poll(() => read().length, { timeout: 60_000 }).toBeGreaterThan(before);
    return JSON.parse((read().at(-1) as string).slice('figures: '.length));
  }

  /** Without a garbage collection before, unlike the figures that the host reports. */
  const readRss = () => {
    const { stdout } = spawnSync('ps', ['-o', 'rss=', '-p', `${host.child.pid}`], {
      encoding: 'utf8',
    });
    return Number(stdout) / 1024;
  };

  it('cost the host less than 50 MB, and a flood from one address is answered 429', {
    timeout: 600_000,
  }, async () => {
    const idleRss = readRss();
    // Enough to load and compile everything that takes part.
    const warmUp = new LoopbackClient(url, '127.0.0.9');
    await runConcurrently(300, 10, (n) => warmUp.get('/sessions', expensive(n)));
    const before = await readFigures();

    const flood = new LoopbackClient(url, '127.0.0.2');
    const replies: Reply[] = [];
    let isOver = false;
    const health: Reply[] = [];
    /** How many tokens were answered while each request to /health waited: its delay on a machine of any speed. */
    const waits: number[] = [];
    const asking = (async () => {
      const client = new LoopbackClient(url, '127.0.0.3');
      while (!isOver) {
        const before = replies.length;
        health.push(await client.get('/health'));
        waits.push(replies.length - before);
      }
      client.close();
    })();
    const startedAt = performance.now();
    await runConcurrently(TOKENS, CONCURRENCY, async (n) =>
      replies.push(await flood.get('/sessions', expensive(n))),
    );
    const minutes = (performance.now() - startedAt) / 60_000;
    isOver = true;
    await asking;

    const counts = countStatuses(replies);
    // Each costs at least 5 of the 6,000 that an address has at first, and again per minute.
    expect(counts[200]).toBeLessThanOrEqual(Math.ceil(1200 * (1 + minutes)));
    const refused = replies.filter(({ status }) => status === 429);
    expect(refused.length).toBe(TOKENS - (counts[200] ?? 0));
    expect(
      refused.every(({ retryAfter, code }) => Number(retryAfter) > 0 && code === 'rate_limited'),
    ).toBe(true);
    expect(new Set(health.map(({ status }) => status))).toEqual(new Set([200]));
    expect(health.length).toBeGreaterThan(20);
    const p99 = waits.sort((a, b) => a - b)[Math.floor(waits.length * 0.99)] ?? TOKENS;
    expect(p99).toBeLessThan(5 * CONCURRENCY);
    // Beside other tests, garbage that the machine had no time to collect is not counted.
    const isAlone = scale(1, 0) === 1;
    const rss = isAlone ? readRss() : (await readFigures()).rss / 1024 ** 2;
    expect(rss - idleRss).toBeLessThan(50);

    // More, from so many addresses that all are accepted.
    const clients = Array.from(
      { length: 8 },
      (_, n) => new LoopbackClient(url, `127.0.1.${n + 1}`),
    );
    const accepted: Reply[] = [];
    await runConcurrently(ACCEPTED, 10, async (n) => {
      const client = clients[n % clients.length] as LoopbackClient;
      accepted.push(await client.get('/sessions', expensive(n)));
    });
    expect(countStatuses(accepted)).toEqual({ 200: ACCEPTED });
    const megabytes = (bytes: number) => bytes / 1024 ** 2;
    const after = await readFigures();
    const kept = after.heapUsed + after.external - before.heapUsed - before.external;
    expect(megabytes(kept)).toBeLessThan(20);
    // V8 gives back what it has no use for in its own time.
    const growth = async () => megabytes((await readFigures()).rss - before.rss);
    await expect.poll(growth, { timeout: 120_000, interval: 1000 }).toBeLessThan(50);
    for (const client of [warmUp, flood, ...clients]) client.close();
  });
});
