import { describe, expect, it } from 'vitest';
import { allMessages } from '../../../test/support/all-messages.js';
import { engines, newOwner, useStore } from '../../../test/support/test-database.js';
import {
  createRunRequest,
  expectStarted,
  finishTestRun,
  flushFrames,
  openTestSession,
  startTestRun,
} from '../../../test/support/test-runs.js';
import type { Frame } from './frames.js';

function framesFrom(first: number, count: number, text = 'w'): Frame[] {
  return Array.from({ length: count }, (_, i) => ({
    seq: first + i,
    event: 'message',
    data: JSON.stringify({ content: `${text}${first + i} ` }),
  }));
}

describe.each(engines)('RunStore on %s', (engine) => {
  const test = useStore(engine);

  it('start stores the run together with its message', async () => {
    const { run, key, session } = await startTestRun(test.store);
    expect(run).toMatchObject({
      status: 'running',
      attempt: 1,
      turn: 1,
      lastSeq: 0,
      hostId: test.store.runs.hostId,
      messageId: expect.stringMatching(/.+/),
    });
    expect(await test.store.runs.find(key)).toEqual(run);
    expect(await allMessages(test.store, session)).toMatchObject([
      { type: 'human', content: 'hi', runId: run.id },
    ]);
  });

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
    expect(await runs.find(key)).toMatchObject({ id: run.id, lastSeq: 703 });
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
    const stranger = { owner: newOwner(), runId: foreign.run.id };
    const result = await runs.flush([
      ...writes,
      { ...stranger, frames: framesFrom(1, 1), steps: [] },
    ]);
    expect(result).toEqual({
      lost: [ended.run.id, foreign.run.id],
      canceled: [{ runId: canceled.run.id, reason: 'aborted' }],
    });
    const count = async (key: typeof fine.key) => (await runs.frames({ ...key, after: 0 })).length;
    expect(
      await Promise.all([fine, canceled, ended, foreign].map(({ key }) => count(key))),
    ).toEqual([1, 1, 0, 0]);
    const other = await test.another();
    expect(await flushFrames(other.runs, fine.key, framesFrom(2, 1))).toMatchObject({
      lost: [fine.run.id],
    });
  });

  it('finish stores the outcome together with the answer, once', async () => {
    const { run, key, session } = await startTestRun(test.store);
    const { runs } = test.store;
    const usage = { input: 10, output: 5, cached: 2 };
    const ending = { content: 'hello', frames: framesFrom(1, 3), usage };
    const results = await Promise.all(
      Array.from({ length: 10 }, () => finishTestRun(runs, key, ending)),
    );
    const ended = results.filter((result) => result !== undefined);
    expect(ended).toHaveLength(1);
    expect(ended[0]?.run).toMatchObject({ status: 'finished', lastSeq: 3, usage });
    const stored = await allMessages(test.store, session);
    expect(stored.map(({ content }) => content)).toEqual(['hi', 'hello']);
    expect(stored[1]).toMatchObject({
      id: run.messageId,
      runId: run.id,
      turn: 1,
      parent: stored[0]?.id,
    });
    expect(await flushFrames(runs, key, framesFrom(4, 1))).toMatchObject({ lost: [run.id] });
  });

  it('finish stores why a turn failed', async () => {
    const { key, session } = await startTestRun(test.store);
    const error = { kind: 'rate_limit', message: 'Too many requests' } as const;
    const reason = { status: 'failed', code: 'model_unavailable', message: 'Too many' } as const;
    const message = { content: '', isComplete: false, error: reason };
    await finishTestRun(test.store.runs, key, { status: 'failed', error, message });
    expect(await test.store.runs.find(key)).toMatchObject({ status: 'failed', error });
    expect((await allMessages(test.store, session))[1]).toMatchObject({ error: reason });
  });

  it('finish does nothing for a run of another host', async () => {
    const { key } = await startTestRun(test.store);
    const other = await test.another();
    expect(await finishTestRun(other.runs, key)).toBeUndefined();
    expect(await test.store.runs.find(key)).toMatchObject({ status: 'running' });
  });

  it('treats the run of another user as unknown', async () => {
    const { run, key, session } = await startTestRun(test.store);
    const { runs } = test.store;
    const foreign = { owner: newOwner(), runId: run.id };
    await flushFrames(runs, key, framesFrom(1, 1));
    expect(await runs.start(createRunRequest({ ...session, owner: foreign.owner }))).toEqual({
      state: 'unknown-session',
    });
    expect(await runs.find(foreign)).toBeUndefined();
    expect(await runs.frames({ ...foreign, after: 0 })).toEqual([]);
    expect(await runs.current({ ...session, owner: foreign.owner })).toBeUndefined();
    expect(await runs.request(foreign)).toBeUndefined();
    expect(await finishTestRun(runs, foreign)).toBeUndefined();
    expect(await runs.cancel(foreign, 'aborted')).toEqual({});
    expect(await runs.find(key)).toMatchObject({ status: 'running', lastSeq: 1 });
  });

  it('is deleted with its session, including messages and frames', async () => {
    const { key, session } = await startTestRun(test.store);
    const { runs, sessions } = test.store;
    await flushFrames(runs, key, framesFrom(1, 5));
    await Promise.all([
      sessions.delete(session),
      finishTestRun(runs, key),
      flushFrames(runs, key, framesFrom(6, 5)),
    ]);
    expect(await runs.find(key)).toBeUndefined();
    expect(await runs.frames({ ...key, after: 0 })).toEqual([]);
    expect(await allMessages(test.store, session)).toEqual([]);
  });
});

describe.each(engines)('RunStore with several runs of a session on %s', (engine) => {
  const test = useStore(engine);

  it('start queues runs behind the running one, and finish promotes them in order', async () => {
    const { runs } = test.store;
    const { run: first, session, key } = await startTestRun(test.store);
    const waiting = await Promise.all(
      Array.from({ length: 5 }, () => startTestRun(test.store, session)),
    );
    expect(waiting.map(({ run }) => run.status)).toEqual(Array(5).fill('queued'));
    expect((await runs.current(session))?.id).toBe(first.id);
    const inOrder = waiting.map(({ run }) => run).sort((a, b) => a.turn - b.turn);
    let last = key;
    for (const next of inOrder) {
      const ended = await finishTestRun(runs, last);
      expect(ended?.next).toMatchObject({
        id: next.id,
        status: 'running',
        startedAt: expect.any(Number),
      });
      last = { owner: next.owner, runId: next.id };
    }
    expect((await finishTestRun(runs, last, { status: 'aborted' }))?.next).toBeUndefined();
    expect(await runs.current(session)).toMatchObject({ id: last.runId, status: 'aborted' });
  });

  it('start and finish on two hosts leave exactly one run active', async () => {
    const { runs } = test.store;
    const other = await test.another();
    for (let round = 0; round < 20; round++) {
      const { session, key } = await startTestRun(test.store);
      const results = await Promise.all([
        finishTestRun(runs, key),
        other.runs.start(createRunRequest(session)),
        runs.start(createRunRequest(session)),
      ]);
      const started = [results[1], results[2]].map(expectStarted);
      const stored = await Promise.all(
        started.map(({ owner, id: runId }) => runs.find({ owner, runId })),
      );
      expect(stored.map((run) => run?.status).sort()).toEqual(['queued', 'running']);
    }
  });

  it('finish leaves the start of a run to the host that accepted it, and claim starts it once', async () => {
    const { runs } = test.store;
    const other = await test.another();
    const { session, key } = await startTestRun(test.store);
    const queued = await startTestRun(other, session);
    const ended = await finishTestRun(runs, key);
    const { hostId } = other.runs;
    expect(ended?.next).toMatchObject({ id: queued.run.id, status: 'running', hostId });
    expect(ended?.next?.startedAt).toBeUndefined();
    expect(await runs.claim({ ...queued.key, from: undefined })).toBeUndefined();
    const claims = await Promise.all(
      [runs, other.runs, runs, other.runs].map((each) =>
        each.claim({ ...queued.key, from: hostId }),
      ),
    );
    expect(claims.filter((claimed) => claimed !== undefined)).toHaveLength(1);
  });

  it('start decides about limits, queue and multitask', async () => {
    const { runs } = test.store;
    const { session, run } = await startTestRun(test.store);
    const start = (overrides: object) => runs.start(createRunRequest({ ...session, ...overrides }));
    expect(await start({ multitask: 'reject' })).toEqual({ state: 'busy' });
    expect(await start({ limits: { live: 1, waiting: 10 } })).toEqual({ state: 'too-many' });
    expect(await start({ limits: { live: 10, waiting: 0 } })).toEqual({ state: 'queue-full' });
    expectStarted(await start({ limits: { live: 2, waiting: 1 } }));
    expect(await start({ limits: { live: 9, waiting: 1 } })).toEqual({ state: 'queue-full' });
    // Nothing of a rejected message is stored.
    expect(await allMessages(test.store, session)).toHaveLength(2);
    const interrupting = await start({ multitask: 'interrupt', limits: { live: 2, waiting: 1 } });
    expect(interrupting).toMatchObject({ state: 'started', run: { status: 'queued' } });
    if (interrupting.state !== 'started') throw new Error();
    expect(interrupting.canceled.map(({ id }) => id)).toContain(run.id);
    expect(interrupting.canceled).toHaveLength(2);
    const ended = await finishTestRun(
      runs,
      { owner: run.owner, runId: run.id },
      { status: 'interrupted' },
    );
    expect(ended?.next?.id).toBe(interrupting.run.id);
  });

  it('start starts one run for 50 requests with the same key', async () => {
    const session = await openTestSession(test.store);
    const idempotency = { key: 'k', bodyHash: 'h', expiresAt: Date.now() + 60_000 };
    const start = (overrides: object) =>
      test.store.runs.start(createRunRequest({ ...session, idempotency, ...overrides }));
    const results = await Promise.all(Array.from({ length: 50 }, () => start({})));
    const runs = results.filter((result) => result.state === 'started');
    expect(runs).toHaveLength(1);
    const runId = runs[0]?.run.id;
    expect(results.filter((result) => result.state === 'existing')).toEqual(
      Array(49).fill({ state: 'existing', runId }),
    );
    expect(await allMessages(test.store, session)).toHaveLength(1);
    const other = { ...idempotency, bodyHash: 'other' };
    expect(await start({ idempotency: other })).toEqual({ state: 'conflict' });
  });

  it('start does not claim a key if it refuses the message', async () => {
    const session = await openTestSession(test.store);
    const idempotency = { key: 'k', bodyHash: 'h', expiresAt: Date.now() + 60_000 };
    const start = (overrides: object) =>
      test.store.runs.start(createRunRequest({ ...session, idempotency, ...overrides }));
    expect(await start({ sessionId: 'unknown' })).toEqual({ state: 'unknown-session' });
    expect(await start({ limits: { live: 0, waiting: 1 } })).toEqual({ state: 'too-many' });
    expectStarted(await start({}));
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
    await runs.pruneFrames({ endedBefore: now });
    expect(await counts()).toEqual([1, 1]);
    now += 1;
    await runs.pruneFrames({ endedBefore: now });
    expect(await counts()).toEqual([0, 1]);
    expect(await allMessages(test.store, ended.session)).toHaveLength(2);
  });
});

// A host ends the runs of all owners.
describe.each(engines)('RunStore of hosts that end on %s', (engine) => {
  const test = useStore(engine, { hasTwins: false });

  it('release makes the queued runs of a host available to the one that ends the turn before', async () => {
    const { runs } = test.store;
    const other = await test.another();
    const { session, key } = await startTestRun(test.store);
    const queued = await startTestRun(other, session);
    await runs.release(other.runs.hostId);
    expect((await runs.find(key))?.hostId).toBe(runs.hostId);
    expect(await runs.hosts()).toEqual(expect.arrayContaining([undefined, runs.hostId]));
    const ended = await finishTestRun(runs, key);
    expect(ended?.next).toMatchObject({ id: queued.run.id, hostId: runs.hostId });
    expect(await runs.request(queued.key)).toEqual({ message: 'hi' });
  });

  it('a host that stops leaves the next run to others', async () => {
    const { runs } = test.store;
    const { session, key } = await startTestRun(test.store);
    const queued = await startTestRun(test.store, session);
    await runs.release(runs.hostId);
    const ended = await finishTestRun(runs, key, {}, false);
    expect(ended?.next).toMatchObject({ id: queued.run.id, status: 'running' });
    expect(ended?.next?.hostId).toBeUndefined();
    const other = await test.another();
    expect(await other.runs.claim({ ...queued.key, from: undefined })).toMatchObject({
      hostId: other.runs.hostId,
      startedAt: expect.any(Number),
    });
  });

  it('close ends a run of a dead host with its log, once, and promotes the next', async () => {
    const { run, key, session } = await startTestRun(test.store);
    const queued = await startTestRun(test.store, session);
    await flushFrames(test.store.runs, key, framesFrom(1, 600));
    const heirs = [await test.another(), await test.another()];
    await heirs[0]?.runs.release(test.store.runs.hostId);
    let frames = 0;
    const closed = await Promise.all(
      heirs.map(({ runs }) =>
        runs.close(run, (_run, log) => {
          frames = log.length;
          return { status: 'interrupted', message: { content: 'part', isComplete: false } };
        }),
      ),
    );
    expect(frames).toBe(600);
    const [ended, ...others] = closed.filter((result) => result !== undefined);
    expect(others).toEqual([]);
    expect(ended).toMatchObject({
      run: { status: 'interrupted' },
      next: { id: queued.run.id, startedAt: expect.any(Number) },
    });
    expect(await finishTestRun(test.store.runs, key)).toBeUndefined();
  });
});
