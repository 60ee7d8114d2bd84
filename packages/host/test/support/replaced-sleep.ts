import { syncBuiltinESMExports } from 'node:module';
import timers from 'node:timers/promises';
import { onTestFinished, vi } from 'vitest';

/** Replaces the `setTimeout` of promises by `wait` until the test ends; returns the delays that were asked for. */
export function replaceSleep(wait: (signal: AbortSignal | undefined) => Promise<void>): unknown[] {
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

/** Never ends by itself. */
export const waitForAbort = (signal: AbortSignal | undefined) =>
  new Promise<void>((_, reject) => {
    signal?.addEventListener('abort', () => reject(signal.reason), { once: true });
  });
