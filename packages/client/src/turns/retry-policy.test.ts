import { afterEach, expect, it, vi } from 'vitest';
import { OracleClientError } from '../errors.js';
import { RetryPolicy } from './retry-policy.js';

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

it.each([3_600_000, -3_600_000])(
  'RetryPolicy measures time with a monotonic clock: a clock step of %d ms changes nothing',
  async (step) => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    const policy = new RetryPolicy({ reconnectTimeoutMs: 60_000 });
    const lost = new OracleClientError('network_error', 'offline');
    const failOnce = async () => {
      const next = policy.waitOrThrow(lost).then(
        () => 'retry',
        ({ code }) => code,
      );
      await vi.advanceTimersByTimeAsync(8_000);
      return next;
    };
    policy.reset();
    expect(await failOnce()).toBe('retry');
    const now = Date.now;
    vi.spyOn(Date, 'now').mockImplementation(() => now() + step);
    expect(await failOnce()).toBe('retry');
    await vi.advanceTimersByTimeAsync(60_000);
    expect(await failOnce()).toBe('connection_lost');
  },
);

it.each([
  [undefined, ['retry', 'retry', 'network_error']],
  [Number.POSITIVE_INFINITY, ['retry', 'retry', 'retry', 'retry', 'retry']],
])(
  'RetryPolicy with a limit of %s ms before the first connection',
  async (reconnectTimeoutMs, expected) => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    const policy = new RetryPolicy({ reconnectTimeoutMs });
    const outcomes: string[] = [];
    for (const _ of expected) {
      const next = policy.waitOrThrow(new OracleClientError('network_error', 'offline'));
      const outcome = next.then(
        () => 'retry',
        ({ code }) => code,
      );
      await vi.advanceTimersByTimeAsync(8_000);
      outcomes.push(await outcome);
    }
    expect(outcomes).toEqual(expected);
  },
);
