import { expect, it, onTestFinished } from 'vitest';
import { HostLoad } from './host-load.js';

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
