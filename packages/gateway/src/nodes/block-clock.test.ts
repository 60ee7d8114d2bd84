import { expect, it } from 'vitest';
import { BlockClock } from './block-watch.js';

/** A clock after some blocks at a steady pace, the last one at `at`. */
function startClock(intervalMs: number, blocks: number) {
  const clock = new BlockClock();
  for (let i = 0; i <= blocks; i += 1) clock.record(100 + i, i * intervalMs);
  return { clock, at: blocks * intervalMs };
}

it('BlockClock.isDue is false right after a block, and true before the next one', () => {
  const { clock, at } = startClock(5000, 10);
  expect(clock.isDue(at + 100)).toBe(false);
  expect(clock.isDue(at + 4000)).toBe(true);
  expect(clock.dueAt).toBe(at + 3750);
});

it('BlockClock.isDue is true at any time until the pace is known, unless no block arrives at all', () => {
  const { clock } = startClock(5000, 0);
  expect(clock.isDue(0)).toBe(true);
  expect(clock.isDue(60_000)).toBe(false);
  clock.record(101, 60_000);
  expect(clock.isDue(70_000)).toBe(false);
});

it('BlockClock follows the fastest of the latest intervals, and is careful with few', () => {
  const { clock, at } = startClock(5000, 20);
  clock.record(121, at + 1000);
  expect(clock.dueAt).toBe(at + 1000 + 750);
  expect(startClock(5000, 2).clock.dueAt).toBe(10_000 + 2500);
});

it('BlockClock.getPollDelay waits for the block, then polls often, and less when the chain has stalled', () => {
  const { clock, at } = startClock(5000, 10);
  expect(clock.getPollDelay(at, 10_000)).toBe(4500);
  expect(clock.getPollDelay(at, 1000)).toBe(1000);
  expect(clock.getPollDelay(at + 4900, 1000)).toBe(200);
  expect(clock.getPollDelay(at + 100_000, 1000)).toBe(1000);
});

it('BlockClock forgets the pace when the height falls, and ignores jumps', () => {
  const { clock, at } = startClock(5000, 10);
  clock.record(5000, at + 1);
  expect(clock.dueAt).toBe(at + 1 + 3750);
  clock.record(1, at + 2);
  expect(clock.dueAt).toBe(at + 2);
});
