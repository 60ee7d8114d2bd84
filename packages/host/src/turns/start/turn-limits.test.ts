import { setImmediate as nextPass } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { HostLoad, StartPace, TurnSlots } from './turn-limits.js';

const MANY = 64;

function measure(storeDelayMs: () => number = () => 0): HostLoad {
  const load = new HostLoad(storeDelayMs);
  onTestFinished(() => load.close());
  return load;
}

/** Keeps every turn of the event loop busy for so long, until `isDone`. */
async function delayLoop(ms: number, isDone: () => boolean): Promise<void> {
  while (!isDone()) {
    const until = performance.now() + ms;
    while (performance.now() < until);
    await new Promise((resolve) => setTimeout(resolve, 0));
  }
}

it('HostLoad.isTooHigh while many turns delay the event loop, and not longer', async () => {
  const load = measure();
  expect(load.isTooHigh(MANY)).toBe(false);
  await delayLoop(400, () => load.isTooHigh(MANY));
  // Something else delays it.
  expect(load.isTooHigh(MANY - 1)).toBe(false);
  await expect.poll(() => load.isTooHigh(MANY)).toBe(false);
});

it('HostLoad.isTooHigh while writes would wait for more than a second', () => {
  let delayMs = 1_000;
  const load = measure(() => delayMs);
  expect(load.isTooHigh(0)).toBe(false);
  delayMs = 1_001;
  expect(load.isTooHigh(0)).toBe(true);
});

it('StartPace begins four turns in each pass of the event loop, in their order', async () => {
  const pace = new StartPace();
  const started: number[] = [];
  const counts: number[] = [];
  for (let i = 0; i < 10; i++) pace.run(() => started.push(i));
  counts.push(started.length);
  for (let pass = 0; pass < 3; pass++) {
    await nextPass();
    counts.push(started.length);
  }
  expect(counts).toEqual([4, 8, 10, 10]);
  expect(started).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  pace.run(() => started.push(10));
  expect(started).toHaveLength(11);
});

describe('TurnSlots', () => {
  const busy = (code: string) => expect.objectContaining({ code, retryAfterSeconds: 5 });
  const from = (owner: string, address = owner) => ({ owner, address, isKnown: true });

  it('acquire allows each user so many turns, each address a share, and all together', () => {
    const slots = new TurnSlots({ maxPerUser: 2, max: 4 });
    const first = slots.acquire(from('alice', 'office'));
    slots.acquire(from('alice', 'office'));
    expect(() => slots.acquire(from('alice', 'office'))).toThrow(busy('too_many_turns'));
    expect(() => slots.acquire(from('bob', 'office'))).toThrow(busy('address_busy'));
    slots.acquire(from('bob'));
    slots.acquire(from('carol'));
    expect(slots.hasRoom).toBe(false);
    expect(() => slots.acquire(from('dave'))).toThrow(busy('host_busy'));
    first();
    expect(slots.hasRoom).toBe(true);
    slots.acquire(from('dave'));
    expect(() => slots.acquire(from('eve'))).toThrow(busy('host_busy'));
  });

  it('take returns a slot beyond the limits, which counts until it is released once', () => {
    const slots = new TurnSlots({ maxPerUser: 1, max: 1 });
    slots.acquire(from('alice'));
    const release = slots.take(from('alice'));
    expect(() => slots.acquire(from('alice'))).toThrow(busy('too_many_turns'));
    release();
    release();
    expect(() => slots.acquire(from('alice'))).toThrow(busy('too_many_turns'));
    expect(() => slots.acquire(from('bob'))).toThrow(busy('host_busy'));
  });
});
