import { expect, it } from 'vitest';
import { MemoryRateLimiter } from './rate-limiter.js';

function limiterAt(perMinute: number, capacity?: number) {
  const clock = { ms: 0 };
  const options = { perMinute, now: () => clock.ms, ...(capacity && { capacity }) };
  return { clock, limiter: new MemoryRateLimiter(options) };
}

it('lets as many through as a minute allows, then says when to come back', async () => {
  const { limiter } = limiterAt(3);
  const verdicts = [];
  for (let i = 0; i < 4; i++) verdicts.push(await limiter.take('a'));
  expect(verdicts.map(({ allowed }) => allowed)).toEqual([true, true, true, false]);
  expect(verdicts[0]).toMatchObject({ limit: 3, remaining: 2 });
  expect(verdicts[3]).toMatchObject({ remaining: 0, resetSeconds: 20 });
});

it('refills evenly', async () => {
  const { clock, limiter } = limiterAt(60);
  for (let i = 0; i < 60; i++) await limiter.take('a');
  expect((await limiter.take('a')).allowed).toBe(false);
  clock.ms += 1000;
  expect((await limiter.take('a')).allowed).toBe(true);
  expect((await limiter.take('a')).allowed).toBe(false);
});

it('counts keys apart, and looking counts nothing', async () => {
  const { limiter } = limiterAt(1);
  await limiter.look('a');
  expect((await limiter.take('a')).allowed).toBe(true);
  expect((await limiter.look('a')).allowed).toBe(false);
  expect((await limiter.take('b')).allowed).toBe(true);
});

it('holds at most its capacity of keys', async () => {
  const { limiter } = limiterAt(1, 2);
  for (const key of ['a', 'b', 'c']) await limiter.take(key);
  expect((await limiter.look('a')).allowed).toBe(true);
  expect((await limiter.look('c')).allowed).toBe(false);
});
