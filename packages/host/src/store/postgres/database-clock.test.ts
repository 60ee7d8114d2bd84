import { pino } from 'pino';
import { expect, it, onTestFinished, vi } from 'vitest';
import { createTestDatabase, newOwner } from '../../../test/support/test-database.js';
import {
  createRunRequest,
  expectStarted,
  finishTestRun,
  flushFrames,
} from '../../../test/support/test-runs.js';
import { startCleanup } from '../../app/cleanup.js';
import { MemoryEventBus } from '../../bus/event-bus.js';
import { loadConfig } from '../../config/config.js';
import { Retention } from '../../own-data/retention.js';
import { openStore } from '../store.js';

const HOUR_MS = 3_600_000;
const YEAR_MS = 365 * 24 * HOUR_MS;

/** Moves the clock of this machine, but not that of PostgreSQL; returns the real time. */
function moveClock(byMs: { current: number }): () => number {
  const real = Date.now.bind(Date);
  const spy = vi.spyOn(Date, 'now').mockImplementation(() => real() + byMs.current);
  onTestFinished(() => spy.mockRestore());
  return real;
}

async function openPostgresStore() {
  const database = await createTestDatabase('postgres');
  const store = await openStore(database.options);
  onTestFinished(async () => {
    await store.close();
    await database.drop();
  });
  const { now } = await store.pluginTables.open({ plugin: 'p', migrations: {}, plugins: ['p'] });
  return { store, now };
}

it('hosts whose clocks are wrong agree on the time of the database, and so do their plugins', async () => {
  const real = moveClock({ current: HOUR_MS });
  const { store, now } = await openPostgresStore();
  expect(Math.abs(now() - real())).toBeLessThan(30_000);
  const { createdAt } = await store.sessions.create({ owner: newOwner(), oracleDid: 'did:o' });
  expect(Math.abs(createdAt - real())).toBeLessThan(30_000);
});

it('time does not jump if the clock is set while the host runs', async () => {
  const moved = { current: 0 };
  const real = moveClock(moved);
  const { now } = await openPostgresStore();
  const difference = now() - real();
  for (const byMs of [-HOUR_MS, HOUR_MS]) {
    moved.current = byMs;
    expect(Math.abs(now() - real() - difference)).toBeLessThan(10_000);
  }
});

it('a machine that was suspended knows the time soon', async () => {
  const { now } = await openPostgresStore();
  const [elapsed, real] = [performance.now.bind(performance), Date.now.bind(Date)];
  const difference = now() - real();
  vi.spyOn(performance, 'now').mockImplementation(() => elapsed() - HOUR_MS);
  onTestFinished(() => void vi.restoreAllMocks());
  await vi.waitUntil(() => Math.abs(now() - real() - difference) < 30_000, { timeout: 30_000 });
});

it('a host whose clock is ahead deletes nothing that is not old, and leaves the next cleanups to all hosts', async () => {
  const { store } = await openPostgresStore();
  const owner = newOwner();
  const { sessionId } = await store.sessions.create({ owner, oracleDid: 'did:o' });
  const { runId } = expectStarted(await store.runs.start(createRunRequest({ owner, sessionId })));
  const key = { owner, runId };
  await flushFrames(store.runs, key, [{ seq: 1, event: 'message', data: '{}' }]);
  await finishTestRun(store.runs, key, { content: 'hello' });
  const seconds = Math.floor(Date.now() / 1000);
  await store.singleUse.of(owner).claim('used', seconds + 3600);
  moveClock({ current: YEAR_MS });
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  onTestFinished(() => void vi.useRealTimers());
  const logger = pino({ level: 'silent' });
  const swept = vi.fn(async () => undefined);
  const turns = { abort: async () => undefined } as never;
  const events = new MemoryEventBus();
  const retention = new Retention({ store, turns, events, logger, days: 30 });
  const stop = startCleanup({ store, files: { sweep: swept }, logger, retention }, loadConfig({}));
  vi.advanceTimersByTime(HOUR_MS);
  await vi.waitUntil(() => swept.mock.calls.length === 2, { timeout: 30_000 });
  await stop();
  expect(await store.sessions.find({ owner, sessionId })).toBeDefined();
  expect(await store.runs.frames({ ...key, after: 0 })).not.toEqual([]);
  expect(await store.singleUse.has('used')).toBe(true);
  const tomorrow = (seconds + 86_400) * 1000;
  expect(await store.jobs.take('cleanup', tomorrow)).toBe(true);
});
