import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Closing, closeShares } from './shutdown.js';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const never = () => new Promise<never>(() => undefined);
const SHARES = { turns: 50, plugins: 20, store: 30 };

/** Closes on a clock of its own; returns what each stage was given, and when the last one was over. */
async function close(works: Record<keyof typeof SHARES, () => Promise<unknown>>) {
  const given: Record<string, number> = {};
  const error = vi.fn();
  const start = performance.now();
  const closing = new Closing(SHARES, { error });
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
  await vi.runAllTimersAsync();
  return { given, took: await closed, late: error.mock.calls.map(([{ stage }]) => stage), closing };
}

it('Closing takes no longer than the sum of its shares, although no stage ever ends', async () => {
  const { given, took, late } = await close({ turns: never, plugins: never, store: never });
  expect(given).toEqual(SHARES);
  expect(took).toBe(100);
  expect(late).toEqual(['turns', 'plugins', 'store']);
});

it('closeShares leaves a process 5 of the 30 seconds in which it has to end', () => {
  const shares = Object.values(closeShares(10_000));
  expect(shares.reduce((total, share) => total + share)).toBe(25_000);
});

it('Closing passes on what a stage leaves over', async () => {
  const { given, late } = await close({
    turns: () => Promise.resolve(),
    plugins: never,
    store: () => Promise.resolve(),
  });
  expect(given).toEqual({ turns: 50, plugins: 70, store: 30 });
  expect(late).toEqual(['plugins']);
});

it('Closing runs every stage although one fails, then reports the failure', async () => {
  const fault = new Error('broken');
  const { given, closing } = await close({
    turns: () => Promise.reject(fault),
    plugins: () => Promise.resolve(),
    store: () => Promise.resolve(),
  });
  expect(Object.keys(given)).toEqual(['turns', 'plugins', 'store']);
  expect(() => closing.end()).toThrow(fault);
});
