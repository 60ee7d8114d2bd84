import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import { expect, it } from 'vitest';
import type { UnsealedWrites } from '../store/runs/frames.js';
import { FlushLoop, type UnsavedRun } from './flush-loop.js';

const NOTHING_LOST = { lost: [], canceled: [] };

/** A run whose frames are numbers. */
function createRun(runId: string) {
  let unsaved: number[] = [];
  const toWrites = (frames: readonly number[]): UnsealedWrites => ({
    owner: 'did:key:z',
    runId,
    frames: frames.map((seq) => ({ seq, event: 'message', data: '{}' })),
    steps: [],
  });
  const run: UnsavedRun = {
    runId,
    take: () => toWrites(unsaved.splice(0)),
    putBack: ({ frames }) => {
      unsaved = [...frames.map(({ seq }) => seq), ...unsaved];
    },
    onLost: () => undefined,
    onCanceled: () => undefined,
  };
  return { run, write: (seq: number) => void unsaved.push(seq) };
}

it('FlushLoop stores what was written during a flush that takes longer than the interval', async () => {
  const stored: number[] = [];
  const slow = Promise.withResolvers<void>();
  let flushes = 0;
  const loop = new FlushLoop(
    {
      flush: async (writes) => {
        flushes += 1;
        if (flushes === 1) await slow.promise;
        stored.push(...writes.flatMap(({ frames }) => frames.map(({ seq }) => seq)));
        return NOTHING_LOST;
      },
    },
    pino({ level: 'silent' }),
  );
  const { run, write } = createRun('run');
  write(1);
  loop.add(run);
  await expect.poll(() => flushes).toBe(1);
  write(2);
  loop.add(run);
  // The timer of the second flush fires during the first one.
  await sleep(400);
  slow.resolve();
  await expect.poll(() => stored).toEqual([1, 2]);
});

it('FlushLoop repeats a failed flush with everything written since', async () => {
  const stored: number[] = [];
  let flushes = 0;
  const loop = new FlushLoop(
    {
      flush: async (writes) => {
        flushes += 1;
        if (flushes <= 2) throw new Error('Connection terminated');
        stored.push(...writes.flatMap(({ frames }) => frames.map(({ seq }) => seq)));
        return NOTHING_LOST;
      },
    },
    pino({ level: 'silent' }),
  );
  const { run, write } = createRun('run');
  write(1);
  loop.add(run);
  await expect.poll(() => flushes).toBe(1);
  write(2);
  loop.add(run);
  await expect.poll(() => stored).toEqual([1, 2]);
});
