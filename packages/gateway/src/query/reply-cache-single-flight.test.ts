import type { CancelSignal } from '@sibyl/grpc-client';
import { expect, it } from 'vitest';
import { SingleFlight } from './reply-cache.js';

const never = () => new Promise<string>(() => {});

const LIMITS = { calls: 3, keyBytes: 10_000 };
const withLimits = (perCaller = LIMITS) => new SingleFlight<string>({ total: LIMITS, perCaller });

it('SingleFlight has room for so many calls, and for so many bytes of keys', () => {
  const singleFlight = withLimits();
  const waiters = ['a', 'b', 'c'].map((key) => singleFlight.share(key, `caller ${key}`, never));
  expect(singleFlight.findExceeded('d', 'caller')).toBe('total');
  waiters[0]?.leave();
  waiters[0]?.leave();
  expect(singleFlight.findExceeded('d', 'caller')).toBeUndefined();
  singleFlight.share('x'.repeat(4000), 'caller', never);
  waiters[1]?.leave();
  expect(singleFlight.findExceeded('y'.repeat(4000), 'other')).toBe('total');
  expect(singleFlight.findExceeded('y', 'other')).toBeUndefined();
});

it('SingleFlight limits the calls and keys of one caller, until its calls end', () => {
  const singleFlight = withLimits({ calls: 2, keyBytes: 5000 });
  const first = singleFlight.share('a', 'one', never);
  singleFlight.share('b', 'one', never);
  expect(singleFlight.findExceeded('c', 'one')).toBe('key');
  expect(singleFlight.findExceeded('c', 'two')).toBeUndefined();
  // A call that was started by another caller does not count.
  singleFlight.share('b', 'two', never);
  expect(singleFlight.findExceeded('x'.repeat(4000), 'two')).toBe('key');
  first.leave();
  expect(singleFlight.findExceeded('c', 'one')).toBeUndefined();
});

it('SingleFlight ends a call when the last caller leaves, however often one leaves', async () => {
  const singleFlight = withLimits();
  let aborted = 0;
  const start = (signal: CancelSignal) => {
    signal.addEventListener('abort', () => {
      aborted += 1;
    });
    return never();
  };
  const [first, second] = [
    singleFlight.share('a', 'one', start),
    singleFlight.share('a', 'two', start),
  ];
  first.leave();
  first.leave();
  expect(aborted).toBe(0);
  second.leave();
  expect(aborted).toBe(1);
});
