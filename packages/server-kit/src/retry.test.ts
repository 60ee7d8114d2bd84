import { syncBuiltinESMExports } from 'node:module';
import timers from 'node:timers/promises';
import { expect, it, onTestFinished, vi } from 'vitest';
import { retry } from './retry.js';

const { signal } = new AbortController();

/** Ends each delay at once, or as `wait` does; returns the delays. */
function replaceSleep(wait = async (_: AbortSignal | undefined) => {}): unknown[] {
  const delays: unknown[] = [];
  const sleep = vi.spyOn(timers, 'setTimeout').mockImplementation(async (ms, value, options) => {
    delays.push(ms);
    await wait(options?.signal);
    return value as never;
  });
  syncBuiltinESMExports();
  onTestFinished(() => {
    sleep.mockRestore();
    syncBuiltinESMExports();
  });
  return delays;
}

/** Fails this many times. */
function createWork(failures = Number.POSITIVE_INFINITY) {
  const work = vi.fn(async () => {
    const attempt = work.mock.calls.length;
    if (attempt <= failures) throw new Error(`failure ${attempt}`);
    return 'done';
  });
  return work;
}

it('retry repeats work with delays that double up to the last one', async () => {
  const delays = replaceSleep();
  const failures: string[] = [];
  const onFailure = (error: unknown, attempt: number) => failures.push(`${attempt}: ${error}`);
  const options = { firstMs: 100, lastMs: 300, signal, onFailure };
  expect(await retry(createWork(4), options)).toBe('done');
  expect(delays).toEqual([100, 200, 300, 300]);
  expect(failures).toEqual([1, 2, 3, 4].map((n) => `${n}: Error: failure ${n}`));
});

it('retry rejects as the last of its attempts does, without a delay after it', async () => {
  const delays = replaceSleep();
  const options = { firstMs: 1, lastMs: 8, attempts: 3, signal };
  await expect(retry(createWork(), options)).rejects.toThrow('failure 3');
  expect(delays).toEqual([1, 2]);
});

it('retry makes one more attempt when the signal is aborted during a delay', async () => {
  const stopping = new AbortController();
  replaceSleep(async (given) => {
    stopping.abort();
    given?.throwIfAborted();
  });
  const options = { firstMs: 60_000, lastMs: 60_000, signal: stopping.signal };
  await expect(retry(createWork(), options)).rejects.toThrow('failure 2');
});

it('retry ends with what onFailure throws', async () => {
  const work = createWork();
  const onFailure = () => {
    throw new Error('hopeless');
  };
  const options = { firstMs: 1, lastMs: 1, signal, onFailure };
  await expect(retry(work, options)).rejects.toThrow('hopeless');
  expect(work).toHaveBeenCalledTimes(1);
});
