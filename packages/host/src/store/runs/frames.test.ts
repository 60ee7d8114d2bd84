import { describe, expect, it } from 'vitest';
import { allMessages } from '../../../test/support/all-messages.js';
import { engines, newOwner, useStore } from '../../../test/support/test-database.js';
import { finishTestRun, flushFrames, startTestRun } from '../../../test/support/test-runs.js';
import type { Frame } from './frames.js';

function framesFrom(first: number, count: number, text = 'w'): Frame[] {
  return Array.from({ length: count }, (_, i) => ({
    seq: first + i,
    event: 'message',
    data: JSON.stringify({ content: `${text}${first + i} ` }),
  }));
}

describe.each(engines)('RunStore.frames on %s', (engine) => {
  const test = useStore(engine);

  it('frames returns pages after a number in order', async () => {
    const { run, key } = await startTestRun(test.store);
    const { runs } = test.store;
    const all = [...framesFrom(1, 700), ...framesFrom(701, 3, 'x'.repeat(200_000))];
    await flushFrames(runs, key, all.slice(0, 450));
    await flushFrames(runs, key, all.slice(450));
    expect(await runs.frames({ ...key, after: 698 })).toEqual(all.slice(698, 701));
    const pages: (readonly Frame[])[] = [];
    for await (const page of runs.framePages({ ...key, after: 0 })) pages.push(page);
    expect(pages.flat()).toEqual(all);
    expect(pages.map((page) => page.length)).toEqual([701, 1, 1]);
    expect(await runs.find(key)).toMatchObject({ runId: run.runId, lastSeq: 703 });
  });

  it('frames keeps the numbers of frames on both sides of a gap', async () => {
    const { key } = await startTestRun(test.store);
    const all = [...framesFrom(1, 3), ...framesFrom(1_000_003, 2)];
    await flushFrames(test.store.runs, key, all);
    for (const [after, count] of [
      [0, 5],
      [2, 3],
      [3, 2],
      [1_000_003, 1],
      [1_000_004, 0],
    ] as const)
      expect(await test.store.runs.frames({ ...key, after })).toEqual(all.slice(5 - count));
  });

  it('flush ignores frames and steps that are already stored, and stores the others', async () => {
    const { key, session } = await startTestRun(test.store);
    const { runs } = test.store;
    const step = (n: number) => ({
      step: n,
      value: { type: 'retry', path: '', callId: `${n}` } as const,
    });
    await runs.flush([{ ...key, frames: framesFrom(1, 2), steps: [step(1)] }]);
    await runs.flush([{ ...key, frames: framesFrom(2, 2), steps: [step(1), step(2)] }]);
    expect(await runs.frames({ ...key, after: 0 })).toEqual(framesFrom(1, 3));
    expect(await runs.find(key)).toMatchObject({ lastSeq: 3 });
    expect(await runs.steps({ ...session, turn: 1 })).toEqual([step(1).value, step(2).value]);
  });

  it('flush stores several runs at once and reports lost and canceled ones', async () => {
    const { runs } = test.store;
    const [fine, canceled, ended, foreign] = await Promise.all(
      Array.from({ length: 4 }, () => startTestRun(test.store)),
    );
    if (!fine || !canceled || !ended || !foreign) throw new Error('not started');
    await runs.cancel(canceled.key, 'aborted');
    await finishTestRun(runs, ended.key);
    const writes = [fine, canceled, ended].map(({ key }) => ({
      ...key,
      frames: framesFrom(1, 1),
      steps: [],
    }));
    const stranger = { owner: newOwner(), runId: foreign.run.runId };
    const result = await runs.flush([
      ...writes,
      { ...stranger, frames: framesFrom(1, 1), steps: [] },
    ]);
    expect(result).toEqual({
      lost: [ended.run.runId, foreign.run.runId],
      canceled: [{ runId: canceled.run.runId, reason: 'aborted' }],
    });
    const count = async (key: typeof fine.key) => (await runs.frames({ ...key, after: 0 })).length;
    expect(
      await Promise.all([fine, canceled, ended, foreign].map(({ key }) => count(key))),
    ).toEqual([1, 1, 0, 0]);
    const other = await test.another();
    expect(await flushFrames(other.runs, fine.key, framesFrom(2, 1))).toMatchObject({
      lost: [fine.run.runId],
    });
  });

  it('RunStore.flush changes the run that is written, and no other of the user', async () => {
    const { runs, sessions } = test.store;
    const { key, session } = await startTestRun(test.store);
    const { owner } = key;
    const { sessionId } = await sessions.create({ owner, oracleDid: 'did:key:zOracle' });
    const other = await startTestRun(test.store, { owner, sessionId });
    const waiting = await startTestRun(test.store, session);
    expect(await flushFrames(runs, key, framesFrom(1, 2))).toEqual({ lost: [], canceled: [] });
    expect(await runs.find(key)).toMatchObject({ lastSeq: 2 });
    for (const untouched of [other, waiting])
      expect(await runs.find(untouched.key)).toMatchObject({ lastSeq: 0 });
  });

  it('RunStore.flush stores nothing of an ended run beside one of another user with the same id', async () => {
    const { runs } = test.store;
    const ended = await startTestRun(test.store);
    const live = await startTestRun(test.store, { runId: ended.run.runId });
    await finishTestRun(runs, ended.key);
    const write = { frames: framesFrom(1, 2), steps: [{ step: 1, value: 'step' }] };
    await runs.flush([ended, live].map(({ key }) => ({ ...key, ...write })));
    expect(await runs.frames({ ...ended.key, after: 0 })).toEqual([]);
    expect(await runs.steps({ ...ended.session, turn: 1 })).toEqual([]);
    expect(await runs.find(ended.key)).toMatchObject({ status: 'finished', lastSeq: 0 });
    expect(await runs.frames({ ...live.key, after: 0 })).toEqual(write.frames);
    expect(await runs.steps({ ...live.session, turn: 1 })).toEqual(['step']);
  });

  it('RunStore.frames reads one run in pages of limited rows and bytes', async () => {
    const { runs } = test.store;
    const { key, session } = await startTestRun(test.store);
    const waiting = await startTestRun(test.store, session);
    const large = framesFrom(1, 3, 'x'.repeat(100_000));
    await flushFrames(runs, key, large);
    const others = framesFrom(1, 3, 'y'.repeat(100_000));
    await flushFrames(runs, waiting.key, others);
    expect(await runs.frames({ ...key, after: 0 })).toEqual(large.slice(0, 2));
    expect(await runs.frames({ ...waiting.key, after: 0 })).toEqual(others.slice(0, 2));
    // With gaps, each has its own row.
    const small = Array.from({ length: 513 }, (_, i) => framesFrom(10 + 2 * i, 1)).flat();
    await flushFrames(runs, key, small);
    expect(await runs.frames({ ...key, after: 3 })).toEqual(small.slice(0, 512));
  });
});

describe.each(engines)('RunStore.pruneFrames on %s', (engine) => {
  let now = 1_000_000;
  const test = useStore(engine, { clock: () => now });

  it('deletes only the logs of runs that ended long ago', async () => {
    const { runs } = test.store;
    const ended = await startTestRun(test.store);
    const live = await startTestRun(test.store);
    for (const { key } of [ended, live]) await flushFrames(runs, key, framesFrom(1, 1));
    await finishTestRun(runs, ended.key, { content: 'x' });
    const counts = () =>
      Promise.all(
        [ended, live].map(async ({ key }) => (await runs.frames({ ...key, after: 0 })).length),
      );
    await test.forAllUsers(() => runs.pruneFrames({ endedBefore: now }));
    expect(await counts()).toEqual([1, 1]);
    now += 1;
    await test.forAllUsers(() => runs.pruneFrames({ endedBefore: now }));
    expect(await counts()).toEqual([0, 1]);
    expect(await allMessages(test.store, ended.session)).toHaveLength(2);
  });

  it('RunStore.pruneFrames keeps the logs of other runs of the user', async () => {
    const { runs } = test.store;
    const ended = await startTestRun(test.store);
    const live = await startTestRun(test.store, ended.session);
    for (const { key } of [ended, live]) await flushFrames(runs, key, framesFrom(1, 1));
    await runs.flush([{ ...live.key, frames: [], steps: [{ step: 1, value: 'kept' }] }]);
    await finishTestRun(runs, ended.key);
    now += 1;
    await test.forAllUsers(() => runs.pruneFrames({ endedBefore: now }));
    expect(await runs.frames({ ...ended.key, after: 0 })).toEqual([]);
    expect(await runs.frames({ ...live.key, after: 0 })).toEqual(framesFrom(1, 1));
    expect(await runs.steps({ ...live.session, turn: 2 })).toEqual(['kept']);
  });

  it('RunStore.pruneFrames keeps the logs of a run of another user with the same id', async () => {
    const { runs } = test.store;
    const ended = await startTestRun(test.store);
    const live = await startTestRun(test.store, { runId: ended.run.runId });
    for (const { key } of [ended, live])
      await runs.flush([{ ...key, frames: framesFrom(1, 1), steps: [{ step: 1, value: 'kept' }] }]);
    await finishTestRun(runs, ended.key);
    now += 1;
    await test.forAllUsers(() => runs.pruneFrames({ endedBefore: now }));
    expect(await runs.frames({ ...ended.key, after: 0 })).toEqual([]);
    expect(await runs.frames({ ...live.key, after: 0 })).toEqual(framesFrom(1, 1));
    expect(await runs.steps({ ...live.session, turn: 1 })).toEqual(['kept']);
  });
});
