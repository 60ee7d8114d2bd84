import { expect, it } from 'vitest';
import { Turnstile } from './turnstile.js';

const { signal } = new AbortController();
const failing = async () => {
  throw new Error('broken');
};

it('lets so many in at once, and all in the end', async () => {
  const turnstile = new Turnstile(2);
  let inside = 0;
  let most = 0;
  const order: number[] = [];
  const work = async (n: number) => {
    inside += 1;
    most = Math.max(most, inside);
    order.push(n);
    await new Promise(setImmediate);
    inside -= 1;
  };
  await Promise.all([0, 1, 2, 3, 4].map((n) => turnstile.pass(signal, () => work(n))));
  expect([most, order]).toEqual([2, [0, 1, 2, 3, 4]]);
});

it('frees the place of work that fails, and of those who stop waiting', async () => {
  const turnstile = new Turnstile(1);
  await expect(turnstile.pass(signal, failing)).rejects.toThrow('broken');
  const leave = Promise.withResolvers<void>();
  const first = turnstile.pass(signal, () => leave.promise);
  const impatient = new AbortController();
  const second = turnstile.pass(impatient.signal, async () => 'never');
  const third = turnstile.pass(signal, async () => 'at last');
  impatient.abort(new Error('enough'));
  await expect(second).rejects.toThrow('enough');
  leave.resolve();
  await first;
  await expect(third).resolves.toBe('at last');
  await expect(turnstile.pass(impatient.signal, async () => 'never')).rejects.toThrow('enough');
});
