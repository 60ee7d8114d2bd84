import { expect, it } from 'vitest';
import { Flights } from './single-flight.js';

const never = () => new Promise<string>(() => {});

it('Flights has room for so many calls, and for so many bytes of keys', () => {
  const flights = new Flights<string>({ maxCalls: 3, maxKeyBytes: 10_000 });
  const seats = ['a', 'b', 'c'].map((key) => flights.share(key, never));
  expect(flights.hasRoomFor('d')).toBe(false);
  seats[0]?.leave();
  seats[0]?.leave();
  expect(flights.hasRoomFor('d')).toBe(true);
  flights.share('x'.repeat(4000), never);
  seats[1]?.leave();
  expect(flights.hasRoomFor('y'.repeat(4000))).toBe(false);
  expect(flights.hasRoomFor('y')).toBe(true);
});

it('Flights ends a call when the last caller leaves, however often one leaves', async () => {
  const flights = new Flights<string>({ maxCalls: 3, maxKeyBytes: 10_000 });
  let aborted = 0;
  const start = (signal: AbortSignal) => {
    signal.addEventListener('abort', () => {
      aborted += 1;
    });
    return never();
  };
  const [first, second] = [flights.share('a', start), flights.share('a', start)];
  first.leave();
  first.leave();
  expect(aborted).toBe(0);
  second.leave();
  expect(aborted).toBe(1);
});
