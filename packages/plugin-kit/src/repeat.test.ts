import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { repeat } from './repeat.js';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it('goes on after a round that failed, until the host closes', async () => {
  const warn = vi.fn();
  const logger = { info: vi.fn(), warn, error: vi.fn() };
  const closing: (() => unknown)[] = [];
  const fault = new Error('broken');
  const work = vi.fn(async () => undefined).mockRejectedValueOnce(fault);
  repeat(work, { everyMs: 1000, logger, onClose: (task) => void closing.push(task) });
  await vi.advanceTimersByTimeAsync(2500);
  expect(work).toHaveBeenCalledTimes(3);
  expect(warn.mock.calls).toEqual([[{ err: fault }, expect.any(String)]]);
  await closing[0]?.();
  await vi.advanceTimersByTimeAsync(5000);
  expect(work).toHaveBeenCalledTimes(3);
});
