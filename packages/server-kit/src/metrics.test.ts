import { Counter, Histogram, Registry } from 'prom-client';
import { expect, it } from 'vitest';
import { TallyCounter, TallyHistogram } from './metrics.js';

const sorted = (text: string) => text.split('\n').toSorted();

/** What a metric of prom-client and ours print after the same calls. */
async function compare(
  fill: (registers: Registry[], isOurs: boolean) => void,
): Promise<[string[], string[]]> {
  const [theirs, ours] = [new Registry(), new Registry()];
  fill([theirs], false);
  fill([ours], true);
  return [sorted(await ours.metrics()), sorted(await theirs.metrics())];
}

it('TallyCounter prints what a counter of prom-client prints', async () => {
  const options = { name: 'calls_total', help: 'Calls', labelNames: ['route', 'status'] };
  const calls = Array.from({ length: 200 }, (_, i) => ({ route: `r${i % 7}`, status: i % 3 }));
  const [ours, theirs] = await compare((registers, isOurs) => {
    const ownCounter = isOurs && new TallyCounter({ ...options, registers });
    const counter = !isOurs && new Counter({ ...options, registers });
    for (const labels of calls) {
      if (ownCounter) ownCounter.add(labels);
      if (counter) counter.inc(labels);
    }
  });
  expect(ours).toEqual(theirs);
});

it('TallyCounter without labels is printed before anything was counted', async () => {
  const options = { name: 'starts_total', help: 'Starts' };
  const [ours, theirs] = await compare((registers, isOurs) =>
    isOurs ? new TallyCounter({ ...options, registers }) : new Counter({ ...options, registers }),
  );
  expect(ours).toEqual(theirs);
  expect(ours).toContain('starts_total 0');
});

it('TallyHistogram prints what a histogram of prom-client prints', async () => {
  const options = {
    name: 'call_seconds',
    help: 'Durations',
    labelNames: ['route'],
    buckets: [0.1, 1, 10],
  };
  const values = [0, 0.1, 0.1000001, 0.5, 1, 9.75, 10, 11, 1000];
  const [ours, theirs] = await compare((registers, isOurs) => {
    const ownHistogram = isOurs && new TallyHistogram({ ...options, registers });
    const histogram = !isOurs && new Histogram({ ...options, registers });
    for (const [i, value] of values.entries()) {
      if (ownHistogram) ownHistogram.add({ route: `r${i % 2}` }, value);
      if (histogram) histogram.observe({ route: `r${i % 2}` }, value);
    }
  });
  expect(ours).toEqual(theirs);
});
