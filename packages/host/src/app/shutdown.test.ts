import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { ShutdownStages, shutdownShares } from './shutdown.js';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const never = () => new Promise<never>(() => undefined);
const SHARES = { turns: 50, plugins: 20, store: 30 };

/** Runs all stages on a fake clock; returns the time that each stage received, and when the last one ended. */
async function close(works: Record<keyof typeof SHARES, () => Promise<unknown>>) {
  const given: Record<string, number> = {};
  const error = vi.fn();
  const start = performance.now();
  const closing = new ShutdownStages(SHARES, { error });
  const closed = (async () => {
    for (const stage of ['turns', 'plugins', 'store'] as const)
      await closing.run(stage, {
        run: (leftMs) => {
          given[stage] = leftMs;
          return works[stage]();
        },
      });
    return performance.now() - start;
  })();
  await vi.advanceTimersByTimeAsync(100);
  return { given, took: await closed, late: error.mock.calls.map(([{ stage }]) => stage), closing };
}

it('ShutdownStages takes at most the sum of its shares, even if no stage ends', async () => {
  const { given, took, late } = await close({ turns: never, plugins: never, store: never });
  expect(given).toEqual(SHARES);
  expect(took).toBe(100);
  expect(late).toEqual(['turns', 'plugins', 'store']);
});

it('shutdownShares leaves a process 5 of the 30 seconds in which it has to end', () => {
  const shares = Object.values(shutdownShares(10_000));
  expect(shares.reduce((total, share) => total + share)).toBe(25_000);
});

it('ShutdownStages passes the unused time of a stage to the next', async () => {
  const { given, late } = await close({
    turns: () => Promise.resolve(),
    plugins: never,
    store: () => Promise.resolve(),
  });
  expect(given).toEqual({ turns: 50, plugins: 70, store: 30 });
  expect(late).toEqual(['plugins']);
});

it('ShutdownStages runs every stage even if one fails, then reports the failure', async () => {
  const error = new Error('broken');
  const { given, closing } = await close({
    turns: () => Promise.reject(error),
    plugins: () => Promise.resolve(),
    store: () => Promise.resolve(),
  });
  expect(Object.keys(given)).toEqual(['turns', 'plugins', 'store']);
  expect(() => closing.end()).toThrow(error);
});
