import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { scale } from './test-scale.ts';

const MINUTES = scale(2, 0.1);
/** A leak of one kilobyte per request would be 180 MB per hour at this load. */
const MOST_LIVE_MB = 12;

it(`bench/soak.ts runs for ${MINUTES} minutes without a failed request, and the live heap stays`, {
  timeout: 240_000 + MINUTES * 60_000,
}, () => {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    ['bench/soak.ts', String(MINUTES)],
    { encoding: 'utf8' },
  );
  expect([status, stderr.replace(/^.*Warning.*\n|^\(Use.*\n/gm, '')]).toEqual([0, '']);
  const slopes = Object.fromEntries(
    [...stdout.matchAll(/^ {2}(\w+): (-?[\d.]+)$/gm)].map(([, name, value]) => [
      name,
      Number(value),
    ]),
  );
  expect(Object.keys(slopes)).toEqual(expect.arrayContaining(['rss', 'heapUsed', 'live']));
  // What the slope amounts to in this run: per hour, the noise of a short run would be multiplied.
  expect(((slopes.live ?? 0) * MINUTES) / 60).toBeLessThan(MOST_LIVE_MB);
});
