import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { repeat } from './repeat.js';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it('repeat continues after a round that failed, until it is stopped', async () => {
  const warn = vi.fn();
  const logger = { info: vi.fn(), warn, error: vi.fn() };
  const error = new Error('broken');
  const work = vi.fn(async () => undefined).mockRejectedValueOnce(error);
  const repetition = repeat(work, { everyMs: 1000, logger });
  await vi.advanceTimersByTimeAsync(2500);
  expect(work).toHaveBeenCalledTimes(3);
  expect(warn.mock.calls).toEqual([[{ err: error }, expect.any(String)]]);
  await repetition.stop();
  await vi.advanceTimersByTimeAsync(5000);
  expect(work).toHaveBeenCalledTimes(3);
});

it('repeat logs rounds that fail one after the other once a minute, and the next failure after a success', async () => {
  const warn = vi.fn();
  const logger = { info: vi.fn(), warn, error: vi.fn() };
  let isBroken = true;
  const work = vi.fn(async () => {
    if (isBroken) throw new Error('broken');
  });
  const repetition = repeat(work, { everyMs: 1000, logger });
  await vi.advanceTimersByTimeAsync(59_500);
  expect(work).toHaveBeenCalledTimes(60);
  expect(warn).toHaveBeenCalledTimes(1);
  await vi.advanceTimersByTimeAsync(1000);
  expect(warn).toHaveBeenCalledTimes(2);
  isBroken = false;
  await vi.advanceTimersByTimeAsync(1000);
  isBroken = true;
  await vi.advanceTimersByTimeAsync(2000);
  expect(warn).toHaveBeenCalledTimes(3);
  await repetition.stop();
});

it('repeat starts one more round when it is woken, however often', async () => {
  const logger = { info: vi.fn(), warn: vi.fn(), error: vi.fn() };
  const work = vi.fn(async () => undefined);
  const repetition = repeat(work, { everyMs: 60_000, logger });
  await vi.advanceTimersByTimeAsync(1);
  for (let i = 0; i < 10; i++) repetition.wake();
  await vi.advanceTimersByTimeAsync(1);
  expect(work).toHaveBeenCalledTimes(2);
  await repetition.stop();
  repetition.wake();
  await vi.advanceTimersByTimeAsync(1);
  expect(work).toHaveBeenCalledTimes(2);
});
