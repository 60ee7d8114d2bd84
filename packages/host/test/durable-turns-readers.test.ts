import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join as joinPath } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { startControlledModel } from './support/controlled-model.js';
import { type HostProcess, runHost, untilListening } from './support/process.js';
import { readSlowly } from './support/read-slowly.js';
import { join, openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const REPORT_MEMORY = joinPath(import.meta.dirname, 'support/report-memory.ts');
const READERS = 100;
const PIECE = 'x'.repeat(4_000);
const PIECES = 2_100;
const MOST_GROWTH_MB = 100;
/** Readings in a row that must not be higher than all before. */
const SETTLED_READINGS = 5;

/** Collects garbage in the host and returns its resident memory in megabytes. */
async function readRss({ child, output }: HostProcess): Promise<number> {
  const readings = () => [...output().matchAll(/figures: (.+)/g)];
  const before = readings().length;
  child.kill('SIGUSR2');
  await expect.poll(() => readings().length).toBeGreaterThan(before);
  return JSON.parse(readings().at(-1)?.[1] ?? '{}').rss / 1024 ** 2;
}

/** Resident memory at its highest, once it does not rise further. */
async function readHighestRss(host: HostProcess): Promise<number> {
  let highest = 0;
  for (let settled = 0; settled < SETTLED_READINGS; ) {
    const rss = await readRss(host);
    settled = rss > highest ? 0 : settled + 1;
    highest = Math.max(highest, rss);
  }
  return highest;
}

it(`GET /runs/:runId holds little memory for ${READERS} stalled readers of a run of 8 MB`, {
  timeout: 240_000,
}, async () => {
  const model = await startControlledModel();
  const DATA_DIR = mkdtempSync(joinPath(tmpdir(), 'sibyl-readers-'));
  const env = {
    PORT: '0',
    DATA_DIR,
    ...model.env,
    STREAMS_PER_USER: '1000',
    STREAM_STALL_SECONDS: '600',
    TURN_MAX_CHARACTERS: '100000000',
  };
  const host = runHost(env, ['--import', REPORT_MEMORY]);
  onTestFinished(async () => {
    host.child.kill('SIGKILL');
    await host.ended;
    model.close();
    rmSync(DATA_DIR, { recursive: true, force: true });
  });
  const url = await untilListening(host);
  const { did } = (await (await fetch(`${url}/.well-known/oracle.json`)).json()) as { did: string };
  const alice = new TestUser({ url, did });
  const live = await stream(alice, await openSession(alice), { message: 'at length' });
  const turn = await model.next();
  for (let i = 0; i < PIECES; i++) turn.say(PIECE);
  turn.finish();
  await live.toEnd();
  // One complete reader first, so that what the first one costs does not count.
  await (await join(alice, live.runId, 0)).toEnd();
  const before = await readHighestRss(host);
  for (let i = 0; i < READERS; i++) {
    const socket = await readSlowly(alice, `/runs/${live.runId}`);
    onTestFinished(() => void socket.destroy());
  }
  expect((await readHighestRss(host)) - before).toBeLessThan(MOST_GROWTH_MB);
});
