import { expect, it, onTestFinished, vi } from 'vitest';
import { createTestDatabase, newOwner } from '../../../test/support/test-database.js';
import { openStore } from '../store.js';

const HOUR_MS = 3_600_000;

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

it('a small difference does not make time jump', async () => {
  const moved = { current: 0 };
  const real = moveClock(moved);
  const { now } = await openPostgresStore();
  moved.current = 100;
  const before = real();
  expect(now()).toBeGreaterThanOrEqual(before + 100);
});

it('a clock that is set while the host runs is noticed within a minute', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  onTestFinished(() => void vi.useRealTimers());
  const moved = { current: 0 };
  const real = moveClock(moved);
  const { now } = await openPostgresStore();
  moved.current = -HOUR_MS;
  expect(Math.abs(now() - real())).toBeGreaterThan(HOUR_MS / 2);
  vi.advanceTimersByTime(60_000);
  // Not `expect.poll`, which moves fake timers.
  await vi.waitUntil(() => Math.abs(now() - real()) < 30_000, { timeout: 60_000 });
});
