import type { CancelSignal } from '@sibyl/grpc-client';
import { expect, it } from 'vitest';
import { SingleFlight } from './reply-cache.js';

const never = () => new Promise<string>(() => {});

it('SingleFlight has room for so many calls, and for so many bytes of keys', () => {
  const singleFlight = new SingleFlight<string>({ maxCalls: 3, maxKeyBytes: 10_000 });
  const waiters = ['a', 'b', 'c'].map((key) => singleFlight.share(key, never));
  expect(singleFlight.canStart('d')).toBe(false);
  waiters[0]?.leave();
  waiters[0]?.leave();
  expect(singleFlight.canStart('d')).toBe(true);
  singleFlight.share('x'.repeat(4000), never);
  waiters[1]?.leave();
  expect(singleFlight.canStart('y'.repeat(4000))).toBe(false);
  expect(singleFlight.canStart('y')).toBe(true);
});

it('SingleFlight ends a call when the last caller leaves, however often one leaves', async () => {
  const singleFlight = new SingleFlight<string>({ maxCalls: 3, maxKeyBytes: 10_000 });
  let aborted = 0;
  const start = (signal: CancelSignal) => {
    signal.addEventListener('abort', () => {
      aborted += 1;
    });
    return never();
  };
  const [first, second] = [singleFlight.share('a', start), singleFlight.share('a', start)];
  first.leave();
  first.leave();
  expect(aborted).toBe(0);
  second.leave();
  expect(aborted).toBe(1);
});
