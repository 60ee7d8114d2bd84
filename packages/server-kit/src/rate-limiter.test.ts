import { describe, expect, it } from 'vitest';
import { RateLimiter, toAddressKey } from './rate-limiter.js';

function limiterAt(ms: number, maxBytes?: number) {
  const clock = { ms };
  return {
    clock,
    limiter: new RateLimiter({ now: () => clock.ms, ...(maxBytes && { maxBytes }) }),
  };
}

describe('RateLimiter', () => {
  it('allows as many requests as a minute has, then says when to retry', () => {
    const { limiter } = limiterAt(0);
    const verdicts = Array.from({ length: 4 }, () => limiter.take('a', 3));
    expect(verdicts.map(({ allowed }) => allowed)).toEqual([true, true, true, false]);
    expect(verdicts[0]).toMatchObject({ limit: 3, remaining: 2 });
    expect(verdicts[3]).toMatchObject({ remaining: 0, resetSeconds: 20 });
  });

  it('refills evenly', () => {
    const { clock, limiter } = limiterAt(0);
    for (let i = 0; i < 60; i++) limiter.take('a', 60);
    expect(limiter.take('a', 60).allowed).toBe(false);
    clock.ms += 1000;
    expect(limiter.take('a', 60).allowed).toBe(true);
    expect(limiter.take('a', 60).allowed).toBe(false);
  });

  it('counts keys separately, and peek takes nothing', () => {
    const { limiter } = limiterAt(0);
    limiter.peek('a', 1);
    expect(limiter.take('a', 1).allowed).toBe(true);
    expect(limiter.peek('a', 1).allowed).toBe(false);
    expect(limiter.take('b', 1).allowed).toBe(true);
  });

  it('charges by cost: all of it or nothing', () => {
    const { limiter } = limiterAt(0);
    expect(limiter.take('a', 10, 7)).toMatchObject({ allowed: true, remaining: 3 });
    expect(limiter.take('a', 10, 7)).toMatchObject({
      allowed: false,
      remaining: 3,
      resetSeconds: 24,
    });
    expect(limiter.take('a', 10, 3).allowed).toBe(true);
  });

  it('spend takes more than there is, at most a minute, and the debt is paid first', () => {
    const { clock, limiter } = limiterAt(0);
    limiter.take('a', 60, 50);
    limiter.spend('a', 60, 30);
    expect(limiter.peek('a', 60)).toMatchObject({ allowed: false, remaining: 0, resetSeconds: 21 });
    clock.ms += 20_000;
    expect(limiter.take('a', 60).allowed).toBe(false);
    clock.ms += 1_000;
    expect(limiter.take('a', 60).allowed).toBe(true);
    limiter.spend('a', 60, 1_000_000);
    clock.ms += 61_000;
    expect(limiter.take('a', 60).allowed).toBe(true);
  });

  it('refunds no more than the bucket holds', () => {
    const { limiter } = limiterAt(0);
    limiter.take('a', 10, 4);
    limiter.refund('a', 10, 3);
    expect(limiter.peek('a', 10).remaining).toBe(9);
    limiter.refund('a', 10, 30);
    expect(limiter.peek('a', 10).remaining).toBe(10);
  });

  it('does not reject known keys when its clock is set back', () => {
    const { clock, limiter } = limiterAt(3_600_000);
    limiter.take('a', 10);
    clock.ms = 0;
    expect(limiter.take('a', 10)).toMatchObject({ allowed: true, remaining: 8 });
    clock.ms += 6_000;
    expect(limiter.peek('a', 10).remaining).toBe(9);
  });

  it('measures time monotonically by default: a step of the wall clock changes nothing', () => {
    const realNow = Date.now;
    const limiter = new RateLimiter();
    try {
      for (const hours of [0, -1, 1]) {
        Date.now = () => realNow() + hours * 3_600_000;
        expect(limiter.take('a', 3).allowed).toBe(true);
      }
      expect(limiter.take('a', 3).allowed).toBe(false);
    } finally {
      Date.now = realNow;
    }
  });

  it('bounds the memory of its keys, however long they are', () => {
    const { limiter } = limiterAt(0, 10_000);
    for (let i = 0; i < 100; i++) limiter.take(`${i}${'x'.repeat(1_000)}`, 1);
    expect(limiter.peek(`0${'x'.repeat(1_000)}`, 1).allowed).toBe(true);
    expect(limiter.peek(`99${'x'.repeat(1_000)}`, 1).allowed).toBe(false);
  });
});

it.each([
  ['127.0.0.1', '127.0.0.1'],
  ['::ffff:10.0.0.9', '10.0.0.9'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
  ['2001:db8:1:2::9', '2001:db8:1:2::/64'],
  ['::1', '0:0:0:0::/64'],
  ['fe80::1%eth0', 'fe80:0:0:0::/64'],
  ['203.0.113.9:5678', '203.0.113.9'],
  ['[2001:DB8:01:2::9]:443', '2001:db8:1:2::/64'],
  ['[2001:db8:1:2::9]', '2001:db8:1:2::/64'],
  ['_hidden-1', 'unknown'],
  ['203.0.113.9:5678:9', 'unknown'],
  [undefined, 'unknown'],
])('%s is limited as %s', (address, key) => {
  expect(toAddressKey(address)).toBe(key);
});
