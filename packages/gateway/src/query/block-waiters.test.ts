import { expect, it } from 'vitest';
import { CallerSlots } from './block-waiters.js';

const createSlots = (max: number, maxPerCaller: number) =>
  new CallerSlots({
    max,
    maxPerCaller,
    callerMessage: 'too many of yours',
    totalMessage: 'too many',
    retrySeconds: 7,
  });
const headers = { 'Retry-After': '7' };

/** Takes as many slots as there are. */
function fill(slots: CallerSlots, caller: Parameters<CallerSlots['acquire']>[0]) {
  for (let count = 0; ; count++)
    try {
      slots.acquire(caller);
    } catch (error) {
      return { count, error };
    }
}

it('CallerSlots limits each caller, each address, and all together', () => {
  const slots = createSlots(4, 2);
  const one = { name: 'one', address: undefined };
  const release = slots.acquire(one);
  slots.acquire(one);
  const ofCaller = { status: 429, message: 'too many of yours', headers };
  expect(() => slots.acquire(one)).toThrow(expect.objectContaining(ofCaller));
  slots.acquire({ name: 'two', address: '198.51.100.1' });
  const three = { name: 'three', address: '198.51.100.1' };
  expect(() => slots.acquire(three)).toThrow(expect.objectContaining({ status: 503, headers }));
  release();
  const ofAddress = { status: 429, message: expect.stringContaining('network address') };
  expect(() => slots.acquire(three)).toThrow(expect.objectContaining(ofAddress));
  slots.acquire({ name: 'four', address: '198.51.100.2' });
});

it('CallerSlots of 60 addresses leave a tenth to others', () => {
  const slots = createSlots(1000, 20);
  let taken = 0;
  for (let i = 0; i < 60; i++) {
    const address = `198.51.100.${i}`;
    taken += fill(slots, { name: address, address }).count;
  }
  expect(taken).toBeLessThan(900);
  expect(fill(slots, { name: '203.0.113.1', address: '203.0.113.1' }).count).toBeGreaterThan(0);
});
