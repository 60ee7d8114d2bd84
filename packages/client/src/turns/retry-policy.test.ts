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

const offline = new OracleClientError('network_error', 'offline');
const reject = (status: number) => new OracleClientError('rejected', 'rejected', { status });
const WITHOUT_END = ['retry', 'retry', 'retry', 'retry', 'retry'];

it.each([
  [undefined, offline, ['retry', 'retry', 'network_error']],
  [undefined, reject(503), ['rejected']],
  [Number.POSITIVE_INFINITY, offline, WITHOUT_END],
  [Number.POSITIVE_INFINITY, reject(502), WITHOUT_END],
  [Number.POSITIVE_INFINITY, reject(429), WITHOUT_END],
  [Number.POSITIVE_INFINITY, reject(404), ['rejected']],
])(
  'RetryPolicy with a limit of %s ms before the first connection: %s',
  async (reconnectTimeoutMs, error, expected) => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    const policy = new RetryPolicy({ reconnectTimeoutMs });
    const outcomes: string[] = [];
    for (const _ of expected) {
      const next = policy.waitOrThrow(error);
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

it('RetryPolicy waits at most two minutes for a proxy that asks for more', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  const policy = new RetryPolicy({ reconnectTimeoutMs: Number.POSITIVE_INFINITY });
  const busy = new OracleClientError('invalid_reply', 'busy', {
    status: 503,
    retryAfterSeconds: 31_536_000,
  });
  let isOver = false;
  const next = policy.waitOrThrow(busy).then(() => {
    isOver = true;
  });
  await vi.advanceTimersByTimeAsync(119_000);
  expect(isOver).toBe(false);
  await vi.advanceTimersByTimeAsync(1_000);
  await next;
});
