import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../../test/support/test-database.js';
import { createApproval, createQuestion } from '../../../test/support/test-interrupts.js';
import { startTestRun } from '../../../test/support/test-runs.js';
import type { RunKey } from '../schema/runs.js';
import type { Store } from '../store.js';
import type { NewInterrupt } from './pauses.js';
import type { RunStore } from './run-store.js';

const pause = (runs: RunStore, key: RunKey, interrupts: readonly NewInterrupt[] = [], limit = 10) =>
  runs.pause({
    ...key,
    interrupts,
    limit,
    steps: [],
    request: {},
    end: { message: { content: '', isComplete: false } },
  });

/** Starts runs in sessions of one user; in the order of their ids. */
async function startRuns({ sessions, runs }: Store, count: number) {
  const owner = newOwner();
  const started: Awaited<ReturnType<typeof startTestRun>>[] = [];
  for (let i = 0; i < count; i++) {
    const { sessionId } = await sessions.create({ owner, oracleDid: 'did:key:zOracle' });
    const id = `${i}-${crypto.randomUUID()}`;
    started.push(await startTestRun({ sessions, runs }, { owner, sessionId, runId: id }));
  }
  const [first, second, third = first] = started;
  if (!first || !second || !third) throw new Error('not started');
  return { owner, first, second, third };
}

describe.each(engines)('RunStore.pause on %s', (engine) => {
  const test = useStore(engine);

  it('RunStore.pause pauses one run, and no more of a user than the limit', async () => {
    const { runs } = test.store;
    const { first, second, third } = await startRuns(test.store, 3);
    expect(await pause(runs, first.key, [], 1)).toMatchObject({ state: 'paused' });
    expect(await runs.find(second.key)).toMatchObject({ status: 'running' });
    expect(await pause(runs, second.key, [], 1)).toEqual({ state: 'too-many' });
    expect(await pause(runs, second.key, [], 2)).toMatchObject({
      run: { runId: second.run.runId, status: 'paused' },
    });
    expect(await runs.find(third.key)).toMatchObject({ status: 'running' });
  });

  it('RunStore.pause pauses neither the run of another host nor one that waits', async () => {
    const { runs } = test.store;
    const { key, session } = await startTestRun(test.store);
    const waiting = await startTestRun(test.store, session);
    const other = await test.another();
    expect(await pause(other.runs, key)).toEqual({ state: 'lost' });
    expect(await pause(runs, waiting.key)).toEqual({ state: 'lost' });
    expect(await pause(runs, { ...key, owner: newOwner() })).toEqual({ state: 'lost' });
    expect(await runs.find(key)).toMatchObject({ status: 'running' });
    expect(await runs.find(waiting.key)).toMatchObject({ status: 'queued' });
  });
});

describe.each(engines)('RunStore.endInterrupt on %s', (engine) => {
  const test = useStore(engine);

  it('RunStore.endInterrupt continues the run whose last question is answered, and leaves others paused', async () => {
    const { runs } = test.store;
    const { owner, first, second } = await startRuns(test.store, 2);
    await pause(runs, first.key, [createQuestion('a')]);
    await pause(runs, second.key, [createQuestion('b'), createQuestion('c')]);
    const answer = (interruptId: string) =>
      runs.endInterrupt({ owner, interruptId, status: 'answered', value: interruptId });
    expect(await answer('b')).toEqual({
      state: 'waiting',
      pending: [{ id: 'c', kind: 'input_required' }],
    });
    expect(await runs.findInterrupt({ owner, interruptId: 'c' })).toMatchObject({
      id: 'c',
      runId: second.run.runId,
      status: 'open',
      callId: 'call of c',
    });
    expect(await answer('b')).toMatchObject({ state: 'closed', interrupt: { id: 'b' } });
    const continued = await answer('c');
    expect(continued).toMatchObject({
      state: 'continued',
      run: { sessionId: second.session.sessionId, attempt: 2, status: 'running' },
    });
    if (continued.state !== 'continued') throw new Error();
    expect(await runs.find(second.key)).toMatchObject({ status: 'continued' });
    expect(await runs.find(first.key)).toMatchObject({ status: 'paused' });
    const nextRunId = continued.run.runId;
    expect(await runs.interrupts({ ...second.session, turn: 1 })).toMatchObject([
      { id: 'b', status: 'answered', value: 'b', nextRunId },
      { id: 'c', status: 'answered', value: 'c', nextRunId },
    ]);
    const [open, ...others] = await runs.interrupts({ ...first.session, turn: 1 });
    expect([open, ...others]).toMatchObject([{ id: 'a', status: 'open', value: undefined }]);
    expect(open?.nextRunId).toBeUndefined();
  });

  it('RunStore.endInterrupt treats the question of another user as unknown', async () => {
    const { runs } = test.store;
    const { key } = await startTestRun(test.store);
    await pause(runs, key, [createQuestion('foreign')]);
    const foreign = { owner: newOwner(), interruptId: 'foreign' };
    expect(await runs.findInterrupt(foreign)).toBeUndefined();
    expect(await runs.endInterrupt({ ...foreign, status: 'answered' })).toEqual({
      state: 'unknown',
    });
    expect(await runs.find(key)).toMatchObject({ status: 'paused' });
  });

  it('RunStore.endInterrupt accepts no late answer and does not continue a run that has ended', async () => {
    const { runs } = test.store;
    const { owner, first, second } = await startRuns(test.store, 2);
    await pause(runs, first.key, [createQuestion('late', { expiresInMs: -1 })]);
    await pause(runs, second.key, [createQuestion('ended')]);
    const paused = await runs.find(second.key);
    if (!paused) throw new Error('not found');
    await runs.close(paused, () => ({
      status: 'interrupted',
      message: { content: '', isComplete: false },
    }));
    for (const interruptId of ['late', 'ended'])
      expect(await runs.endInterrupt({ owner, interruptId, status: 'answered' })).toMatchObject({
        state: 'closed',
      });
    expect(await runs.find(second.key)).toMatchObject({ status: 'interrupted' });
  });

  it('RunStore.interrupts returns those of one turn', async () => {
    const { runs } = test.store;
    const { key, session } = await startTestRun(test.store);
    await pause(runs, key, [createQuestion('turn 1')]);
    const next = await startTestRun(test.store, session);
    await pause(runs, next.key, [createQuestion('turn 2')]);
    const list = async (turn: number) =>
      (await runs.interrupts({ ...session, turn })).map(({ id, status }) => [id, status]);
    expect(await list(1)).toEqual([['turn 1', 'cancelled']]);
    expect(await list(2)).toEqual([['turn 2', 'open']]);
    expect(await runs.interrupts({ ...session, owner: newOwner(), turn: 1 })).toEqual([]);
  });
});

describe.each(engines)('RunStore.cancel on %s', (engine) => {
  const test = useStore(engine);

  it('RunStore.cancel ends one paused run with its open questions', async () => {
    const { runs, activity } = test.store;
    const { owner, first, second, third } = await startRuns(test.store, 3);
    await pause(runs, first.key, [createQuestion('answered'), createApproval('first')]);
    await pause(runs, second.key, [createApproval('second')]);
    await runs.endInterrupt({ owner, interruptId: 'answered', status: 'answered' });
    expect(await runs.cancel(first.key, 'aborted')).toMatchObject({
      run: { runId: first.run.runId, status: 'aborted' },
    });
    expect(await runs.find(second.key)).toMatchObject({ status: 'paused' });
    expect((await runs.find(second.key))?.cancelReason).toBeUndefined();
    expect((await runs.find(third.key))?.cancelReason).toBeUndefined();
    const statuses = ['answered', 'first', 'second'].map(
      async (interruptId) => (await runs.findInterrupt({ owner, interruptId }))?.status,
    );
    expect(await Promise.all(statuses)).toEqual(['answered', 'cancelled', 'open']);
    const decided = (await activity.list({ owner, limit: 10 })).filter(
      ({ kind }) => kind === 'approval_decided',
    );
    expect(decided).toMatchObject([{ approvalId: 'first', outcome: 'cancelled' }]);
  });

  it('RunStore.cancel does not mark a run that waits', async () => {
    const { runs } = test.store;
    const { session } = await startTestRun(test.store);
    const waiting = await startTestRun(test.store, session);
    expect(await runs.cancel(waiting.key, 'aborted')).toEqual({});
    expect((await runs.find(waiting.key))?.cancelReason).toBeUndefined();
  });
});

// They are ended for all owners.
describe.each(engines)('RunStore.expiredInterrupts on %s', (engine) => {
  const test = useStore(engine, { hasTwins: false });

  it('RunStore.expiredInterrupts returns open questions after their time, some at once', async () => {
    const { runs } = test.store;
    const { owner, first, second } = await startRuns(test.store, 2);
    const [expired, ended] = [
      createQuestion('expired', { expiresInMs: -1 }),
      createQuestion('ended', { expiresInMs: -1 }),
    ];
    await pause(runs, first.key, [expired, ended, createQuestion('open')]);
    await runs.endInterrupt({ owner, interruptId: 'ended', status: 'expired' });
    expect(await runs.expiredInterrupts()).toEqual([{ owner, interruptId: 'expired' }]);
    const many = Array.from({ length: 101 }, (_, i) => createQuestion(`${i}`, { expiresInMs: -1 }));
    await pause(runs, second.key, many);
    expect(await runs.expiredInterrupts()).toHaveLength(100);
  });
});
