import { getEventListeners } from 'node:events';
import { expect, it } from 'vitest';
import { untilAborted } from './timeouts.js';

it('does not begin what is aborted already', async () => {
  let begun = 0;
  const work = untilAborted(async () => ++begun, AbortSignal.abort('stop'));
  await expect(work).rejects.toBe('stop');
  expect(begun).toBe(0);
});

it('lets go of the signal when the work is done', async () => {
  const { signal } = new AbortController();
  expect(await untilAborted(async () => 1, signal)).toBe(1);
  await expect(untilAborted(() => Promise.reject(new Error('no')), signal)).rejects.toThrow('no');
  expect(getEventListeners(signal, 'abort')).toEqual([]);
});

it('does not wait for work that goes on', async () => {
  const turn = new AbortController();
  const work = untilAborted(() => new Promise(() => undefined), turn.signal);
  turn.abort('stop');
  await expect(work).rejects.toBe('stop');
});
