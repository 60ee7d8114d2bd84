import { expect, it } from 'vitest';
import { CallerSlots } from './block-waiters.js';

const createSlots = () =>
  new CallerSlots({
    max: 3,
    maxPerCaller: 2,
    callerMessage: 'too many of yours',
    totalMessage: 'too many',
    retrySeconds: 7,
  });
const headers = { 'Retry-After': '7' };

it('CallerSlots limits each caller, each address, and all together', () => {
  const slots = createSlots();
  const one = { name: 'one', address: undefined };
  const release = slots.acquire(one);
  slots.acquire(one);
  const ofCaller = { status: 429, message: 'too many of yours', headers };
  expect(() => slots.acquire(one)).toThrow(expect.objectContaining(ofCaller));
  slots.acquire({ name: 'two', address: '198.51.100.1' });
  const three = { name: 'three', address: '198.51.100.1' };
  const ofAll = { status: 503, message: 'too many', headers };
  expect(() => slots.acquire(three)).toThrow(expect.objectContaining(ofAll));
  release();
  slots.acquire(three);
  const four = { name: 'four', address: '198.51.100.1' };
  expect(() => slots.acquire(four)).toThrow(expect.objectContaining(ofCaller));
});
