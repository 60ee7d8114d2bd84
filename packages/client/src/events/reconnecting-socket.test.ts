import { expect, it } from 'vitest';
import { SocketRetries } from './reconnecting-socket.js';

const times = <T>(count: number, make: () => T): T[] => Array.from({ length: count }, make);

it('SocketRetries connects again without end after temporary rejections, with growing delays', () => {
  const retries = new SocketRetries();
  const busy = { code: 'store_unavailable', statusCode: 503 };
  const delays = times(30, () => retries.findDelay(busy));
  expect(delays.slice(0, 3)).toEqual([500, 1000, 1500]);
  expect(delays.at(-1)).toBe(10_000);
  const full = { code: 'too_many_sockets', statusCode: 429, retryAfterSeconds: 60 };
  expect(times(10, () => retries.findDelay(full))).toEqual(times(10, () => 60_000));
  // A connection that the oracle closes has only a reason.
  for (const code of ['rate_limited', 'host_stopping'])
    expect(times(10, () => retries.findDelay({ code }))).not.toContain(undefined);
  expect(retries.findDelay({ code: 'rate_limited' })).toBe(60_000);
});

it('SocketRetries stops after five other rejections, and at once if the session is gone', () => {
  const retries = new SocketRetries();
  const invalid = { code: 'invalid_token', statusCode: 401 };
  expect(times(4, () => retries.findDelay(invalid))).not.toContain(undefined);
  expect(retries.findDelay({ code: 'internal_error', statusCode: 500 })).toBe(2500);
  expect(retries.findDelay(invalid)).toBeUndefined();
  retries.reset();
  expect(retries.findDelay(invalid)).toBe(500);
  expect(retries.findDelay({ code: 'session_not_found', statusCode: 404 })).toBeUndefined();
});
