import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { FlushResult, UnsealedWrites } from '../../store/runs/frames.js';
import { FlushLoop, type UnsavedRun } from './run-recorder.js';

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

describe('FlushLoop with a clock', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  /** A loop with a store whose flushes end when a test says so, if it is slow. */
  function createLoop({ isSlow = false } = {}) {
    const stored: string[][] = [];
    const levels: string[] = [];
    const flushed = vi.fn();
    const ends: PromiseWithResolvers<FlushResult>[] = [];
    const store = { error: undefined as Error | undefined, result: NOTHING_LOST as FlushResult };
    const flush = async (writes: readonly UnsealedWrites[]): Promise<FlushResult> => {
      stored.push(writes.map(({ runId, frames }) => `${runId} ${frames.map(({ seq }) => seq)}`));
      if (store.error) throw store.error;
      if (!isSlow) return store.result;
      const end = Promise.withResolvers<FlushResult>();
      ends.push(end);
      return end.promise;
    };
    const logger = pino(
      { level: 'debug' },
      { write: (line) => levels.push(JSON.parse(line).level) },
    );
    return {
      loop: new FlushLoop({ flush }, logger, flushed),
      stored,
      flushed,
      store,
      ends,
      levels,
    };
  }

  it('add stores what all runs wrote in one flush, 150 ms after the first', async () => {
    const { loop, stored, flushed } = createLoop();
    const [a, b] = [createRun('a'), createRun('b')];
    a.write(1);
    loop.add(a.run);
    await vi.advanceTimersByTimeAsync(100);
    b.write(1);
    loop.add(b.run);
    a.write(2);
    loop.add(a.run);
    await vi.advanceTimersByTimeAsync(49);
    expect(stored).toEqual([]);
    await vi.advanceTimersByTimeAsync(1);
    expect(stored).toEqual([['a 1,2', 'b 1']]);
    expect(flushed.mock.calls).toEqual([[2, 0]]);
    // A host without writes does not wake up.
    expect(vi.getTimerCount()).toBe(0);
  });

  it('reports how many seconds a flush took', async () => {
    const { loop, flushed, ends } = createLoop({ isSlow: true });
    loop.add(createRun('a').run);
    await vi.advanceTimersByTimeAsync(150);
    await vi.advanceTimersByTimeAsync(2_500);
    ends[0]?.resolve(NOTHING_LOST);
    await vi.advanceTimersByTimeAsync(0);
    expect(flushed.mock.calls).toEqual([[1, 2.5]]);
  });

  it('flushNow stores at once, with all that waits, which is not flushed again', async () => {
    const { loop, stored } = createLoop();
    const [a, b] = [createRun('a'), createRun('b')];
    a.write(1);
    loop.add(a.run);
    b.write(1);
    await loop.flushNow(b.run);
    expect(stored).toEqual([['a 1', 'b 1']]);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('flushNow waits for the flush in progress, then stores what was written since', async () => {
    const { loop, stored, ends } = createLoop({ isSlow: true });
    const { run, write } = createRun('a');
    write(1);
    const first = loop.flushNow(run);
    await vi.advanceTimersByTimeAsync(0);
    write(2);
    const isStored = vi.fn();
    const second = loop.flushNow(run).then(isStored);
    await vi.advanceTimersByTimeAsync(0);
    expect(stored).toEqual([['a 1']]);
    ends[0]?.resolve(NOTHING_LOST);
    await first;
    await vi.advanceTimersByTimeAsync(0);
    expect(stored).toEqual([['a 1'], ['a 2']]);
    expect(isStored).not.toHaveBeenCalled();
    ends[1]?.resolve(NOTHING_LOST);
    await second;
  });

  it('remove excludes a run from the next flush', async () => {
    const { loop, stored } = createLoop();
    const [a, b] = [createRun('a'), createRun('b')];
    for (const { run, write } of [a, b]) {
      write(1);
      loop.add(run);
    }
    await loop.remove(a.run);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(stored).toEqual([['b 1']]);
  });

  it('remove waits for a flush that contains the run, and for no other', async () => {
    const { loop, ends } = createLoop({ isSlow: true });
    const [a, b] = [createRun('a'), createRun('b')];
    loop.add(a.run);
    await vi.advanceTimersByTimeAsync(150);
    await loop.remove(b.run);
    const isRemoved = vi.fn();
    const removing = loop.remove(a.run).then(isRemoved);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(isRemoved).not.toHaveBeenCalled();
    ends[0]?.resolve(NOTHING_LOST);
    await removing;
  });

  it('remove also excludes a run that a failed flush has put back', async () => {
    const { loop, stored, ends } = createLoop({ isSlow: true });
    const { run, write } = createRun('a');
    write(1);
    loop.add(run);
    await vi.advanceTimersByTimeAsync(150);
    const removing = loop.remove(run);
    ends[0]?.reject(new Error('Connection terminated'));
    await removing;
    await vi.advanceTimersByTimeAsync(10_000);
    expect(stored).toEqual([['a 1']]);
    // What was not stored is still there.
    expect(run.take().frames).toHaveLength(1);
  });

  it('reports to exactly the runs concerned that they were lost or canceled', async () => {
    const { loop, store } = createLoop();
    const received: string[] = [];
    const runs = ['a', 'b', 'c', 'd'].map((runId) => ({
      ...createRun(runId).run,
      onLost: () => void received.push(`${runId} lost`),
      onCanceled: (reason: string) => void received.push(`${runId} ${reason}`),
    }));
    store.result = {
      lost: ['b', 'unknown'],
      canceled: [
        { runId: 'c', reason: 'aborted' },
        { runId: 'd', reason: 'interrupted' },
        { runId: 'unknown', reason: 'aborted' },
      ],
    };
    for (const run of runs) loop.add(run);
    await vi.advanceTimersByTimeAsync(150);
    expect(received).toEqual(['b lost', 'c aborted', 'd interrupted']);
  });

  it('waits longer after each failure, up to 2 s, and warns once in each outage', async () => {
    const { loop, stored, store, flushed, levels } = createLoop();
    const { run, write } = createRun('a');
    store.error = new Error('Connection terminated');
    write(1);
    loop.add(run);
    await vi.advanceTimersByTimeAsync(150);
    for (const [i, delay] of [400, 800, 1_600, 2_000, 2_000].entries()) {
      expect(stored).toHaveLength(i + 1);
      await vi.advanceTimersByTimeAsync(delay - 1);
      expect(stored).toHaveLength(i + 1);
      await vi.advanceTimersByTimeAsync(1);
    }
    expect(stored).toEqual(Array.from({ length: 6 }, () => ['a 1']));
    expect([levels, flushed.mock.calls]).toEqual([[40, 20, 20, 20, 20, 20], []]);
    store.error = undefined;
    await vi.advanceTimersByTimeAsync(2_000);
    expect(flushed).toHaveBeenCalledTimes(1);
    // The next outage begins again.
    store.error = new Error('Connection terminated');
    write(2);
    loop.add(run);
    await vi.advanceTimersByTimeAsync(150);
    expect(stored.slice(7)).toEqual([['a 2']]);
    expect(levels.slice(6)).toEqual([40]);
    store.error = undefined;
    await vi.advanceTimersByTimeAsync(399);
    expect(stored).toHaveLength(8);
    await vi.advanceTimersByTimeAsync(1);
    expect(stored.slice(8)).toEqual([['a 2']]);
  });

  it('stores what was written during a flush 150 ms after its end', async () => {
    const { loop, stored, ends } = createLoop({ isSlow: true });
    const { run, write } = createRun('a');
    write(1);
    loop.add(run);
    await vi.advanceTimersByTimeAsync(150);
    write(2);
    loop.add(run);
    await vi.advanceTimersByTimeAsync(1_000);
    ends[0]?.resolve(NOTHING_LOST);
    await vi.advanceTimersByTimeAsync(149);
    expect(stored).toEqual([['a 1']]);
    await vi.advanceTimersByTimeAsync(1);
    expect(stored).toEqual([['a 1'], ['a 2']]);
    ends[1]?.resolve(NOTHING_LOST);
  });
});
