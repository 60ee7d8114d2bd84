import { describe, expect, it } from 'vitest';
import { newOwner, useStore } from '../../../test/support/test-database.js';
import {
  copySession,
  finishTestRun,
  flushFrames,
  startTestRun,
} from '../../../test/support/test-runs.js';
import type { RunKey } from '../schema/runs.js';
import type { Frame } from './frames.js';

const createFrames = (first: number, count: number, data = '"x"'): Frame[] =>
  Array.from({ length: count }, (_, i) => ({ seq: first + i, event: 'message', data }));

describe('what RunStore.flush stores', () => {
  let now = 1_000_000;
  const test = useStore('sqlite', { clock: () => now });

  it('tool calls of the runs it has, and none of a run that it has lost', async () => {
    const { runs, activity } = test.store;
    const [kept, lost] = [await startTestRun(test.store), await startTestRun(test.store)];
    await finishTestRun(runs, lost.key);
    const toWrites = (key: RunKey) => ({
      ...{ ...key, frames: [], steps: [{ step: 1, value: 'step' }] },
      activity: [{ owner: key.owner, id: 'call', kind: 'tool_call' as const, createdAt: now }],
    });
    expect(await runs.flush([toWrites(kept.key), toWrites(lost.key)])).toEqual({
      lost: [lost.run.runId],
      canceled: [],
    });
    const count = async ({ key, session }: typeof kept) => [
      (await activity.list({ owner: key.owner, limit: 10 })).length,
      (await runs.steps({ ...session, turn: 1 })).length,
    ];
    expect(await count(kept)).toEqual([1, 1]);
    expect(await count(lost)).toEqual([0, 0]);
  });

  it('the time of the flush, and the last number only if there are frames', async () => {
    const { runs } = test.store;
    const { key, run } = await startTestRun(test.store);
    now += 5;
    await flushFrames(runs, key, createFrames(1, 4));
    expect(await runs.find(key)).toEqual({ ...run, lastSeq: 4, updatedAt: now });
    now += 5;
    await flushFrames(runs, key, []);
    expect(await runs.find(key)).toEqual({ ...run, lastSeq: 4, updatedAt: now });
  });

  it('nothing for a run of another host, and everything for one that waits', async () => {
    const { runs } = test.store;
    const other = await test.another();
    const { key, session } = await startTestRun(test.store);
    const waiting = await startTestRun(test.store, session);
    expect(await flushFrames(other.runs, key, createFrames(1, 1))).toEqual({
      lost: [key.runId],
      canceled: [],
    });
    expect(await runs.frames({ ...key, after: 0 })).toEqual([]);
    expect(await flushFrames(runs, waiting.key, createFrames(1, 1))).toEqual({
      lost: [],
      canceled: [],
    });
    expect(await runs.frames({ ...waiting.key, after: 0 })).toEqual(createFrames(1, 1));
  });

  it('each of many steps and frames with gaps, however many there are', async () => {
    const { runs } = test.store;
    const { key, session } = await startTestRun(test.store);
    const steps = Array.from({ length: 131 }, (_, i) => ({ step: i + 1, value: i }));
    const frames = steps.flatMap(({ step }) => createFrames(2 * step, 1));
    await runs.flush([{ ...key, frames, steps }]);
    expect(await runs.steps({ ...session, turn: 1 })).toEqual(steps.map(({ value }) => value));
    expect(await runs.frames({ ...key, after: 0 })).toEqual(frames);
  });

  it('frames with spaces, line ends and nothing in their data, unchanged', async () => {
    const { runs } = test.store;
    const { key } = await startTestRun(test.store);
    const texts = [{ a: 'one two  three' }, 'a\nb', '', {}].map((value) => JSON.stringify(value));
    const frames = texts.map((data, i) => ({ seq: i + 1, event: `event${i}`, data }));
    await flushFrames(runs, key, frames);
    expect(await runs.frames({ ...key, after: 0 })).toEqual(frames);
    expect(await runs.frames({ ...key, after: 2 })).toEqual(frames.slice(2));
  });

  it('a page of frames of at most 256 KiB, in whole rows of at least 32 KiB', async () => {
    const { runs } = test.store;
    const { key } = await startTestRun(test.store);
    // With its event and a space, each is 1 KiB; 32 of them share a row, with 31 line ends.
    const frames = createFrames(1, 300, 'x'.repeat(1024 - 'message '.length));
    await flushFrames(runs, key, frames);
    const page = await runs.frames({ ...key, after: 0 });
    expect(page).toEqual(frames.slice(0, 7 * 32));
    expect(await runs.frames({ ...key, after: 7 * 32 })).toEqual(frames.slice(7 * 32));
  });

  it('the log of a run beside that of another user whose session has the same id', async () => {
    const { runs } = test.store;
    const id = crypto.randomUUID();
    const first = await startTestRun(test.store, { runId: id });
    const session = await copySession(test.store, newOwner(), first.session);
    const second = await startTestRun(test.store, { ...session, runId: id });
    await flushFrames(runs, first.key, createFrames(1, 1, '"first"'));
    await flushFrames(runs, second.key, createFrames(1, 2, '"second"'));
    expect(await runs.frames({ ...first.key, after: 0 })).toEqual(createFrames(1, 1, '"first"'));
    expect(await runs.find(first.key)).toMatchObject({ lastSeq: 1 });
    await finishTestRun(runs, second.key);
    expect(await runs.frames({ ...second.key, after: 0 })).toHaveLength(2);
    expect(await runs.find(first.key)).toMatchObject({ status: 'running' });
  });
});

// It deletes the logs of all users.
describe('what RunStore.pruneFrames deletes', () => {
  let now = 1_000_000;
  const test = useStore('sqlite', { hasTwins: false, clock: () => now });

  it('the logs of all runs that ended before the time, also of more than two hundred', async () => {
    const { runs } = test.store;
    const keys: RunKey[] = [];
    const { session, key: live } = await startTestRun(test.store);
    await flushFrames(runs, live, createFrames(1, 1));
    for (let i = 0; i < 250; i++) {
      const limits = { live: 1000, waiting: 1000 };
      const { key } = await startTestRun(test.store, { ...session, limits });
      await flushFrames(runs, key, createFrames(1, 1));
      await finishTestRun(runs, key);
      keys.push(key);
    }
    now += 1;
    await runs.pruneFrames({ endedBefore: now });
    const logs = await Promise.all(keys.map((key) => runs.frames({ ...key, after: 0 })));
    expect(logs.flat()).toEqual([]);
    expect(await runs.frames({ ...live, after: 0 })).toHaveLength(1);
  });

  it('the steps of an attempt that was continued, and nothing of one that is paused', async () => {
    const { runs } = test.store;
    const continued = await startTestRun(test.store);
    const paused = await startTestRun(test.store);
    for (const { key } of [continued, paused])
      await runs.flush([
        { ...key, frames: createFrames(1, 1), steps: [{ step: 1, value: 'step' }] },
      ]);
    await runs.resume(continued.run, []);
    await runs.pause({
      ...{ ...paused.key, interrupts: [], limit: 1, steps: [], request: {} },
      end: { message: { content: '', isComplete: false } },
    });
    now += 1;
    await runs.pruneFrames({ endedBefore: now });
    const count = async ({ key, session }: typeof paused) => [
      (await runs.frames({ ...key, after: 0 })).length,
      (await runs.steps({ ...session, turn: 1 })).length,
    ];
    expect(await count(continued)).toEqual([0, 0]);
    expect(await count(paused)).toEqual([1, 1]);
  });
});
