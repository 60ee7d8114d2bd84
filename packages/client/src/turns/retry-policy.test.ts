import { afterEach, expect, it, vi } from 'vitest';
import { OracleClientError } from '../errors.js';
import { RetryPolicy } from './retry-policy.js';

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

it.each([3_600_000, -3_600_000])(
  'Retries measures how long it fails on a clock that a step of %d ms does not change',
  async (step) => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    const retries = new RetryPolicy({ reconnectTimeoutMs: 60_000 });
    const lost = new OracleClientError('network_error', 'gone');
    const failOnce = async () => {
      const next = retries.waitOrThrow(lost).then(
        () => 'again',
        ({ code }) => code,
      );
      await vi.advanceTimersByTimeAsync(8_000);
      return next;
    };
    retries.reset();
    expect(await failOnce()).toBe('again');
    const now = Date.now;
    vi.spyOn(Date, 'now').mockImplementation(() => now() + step);
    expect(await failOnce()).toBe('again');
    await vi.advanceTimersByTimeAsync(60_000);
    expect(await failOnce()).toBe('connection_lost');
  },
);
