import { getEventListeners } from 'node:events';
import { expect, it } from 'vitest';
import { ChangeSignal } from './change-signal.js';

it('ChangeSignal.notify ends all waits in progress, and no later one', async () => {
  const changes = new ChangeSignal();
  const waits = [changes.wait(), changes.wait({ ms: 60_000 })];
  changes.notify();
  expect(await Promise.all(waits)).toEqual([true, true]);
  expect(await changes.wait({ ms: 1 })).toBe(false);
});

it('ChangeSignal.wait ends with the signal, and leaves no listener', async () => {
  const changes = new ChangeSignal();
  const { signal, abort } = createSignal();
  const wait = changes.wait({ signal });
  abort();
  expect(await wait).toBe(false);
  expect(await changes.wait({ signal })).toBe(false);

  const other = createSignal();
  const changed = changes.wait({ signal: other.signal });
  changes.notify();
  expect(await changed).toBe(true);
  expect(getEventListeners(other.signal, 'abort')).toEqual([]);
});

it('a reader that reads, and then waits on a ChangeSignal, misses no change', async () => {
  const changes = new ChangeSignal();
  const items: number[] = [];
  const { signal, abort } = createSignal();
  const read = async () => {
    const seen: number[] = [];
    while (!signal.aborted) {
      const fresh = items.slice(seen.length);
      seen.push(...fresh);
      // A slow reader: changes happen meanwhile.
      if (fresh.length > 0) await Promise.resolve();
      else await changes.wait({ signal });
    }
    return seen;
  };
  const readers = [read(), read()];
  for (let i = 0; i < 100; i++) {
    items.push(i);
    changes.notify();
    for (let turns = i % 4; turns > 0; turns--) await Promise.resolve();
  }
  await new Promise((resolve) => setImmediate(resolve));
  abort();
  expect(await Promise.all(readers)).toEqual([items, items]);
});

function createSignal() {
  const controller = new AbortController();
  return { signal: controller.signal, abort: () => controller.abort() };
}
