import { describe, expect, it } from 'vitest';
import { newOwner, useStore } from '../../../test/support/test-database.js';
import { createQuestion } from '../../../test/support/test-interrupts.js';
import {
  createRunRequest,
  finishTestRun,
  flushFrames,
  openTestSession,
  startTestRun,
} from '../../../test/support/test-runs.js';
import type { RunKey } from '../schema/runs.js';
import { StoreError } from '../store-errors.js';
import { hasEnded, hasStopped } from './run.js';
import type { RunStore } from './run-store.js';

const frame = (seq: number) => ({ seq, event: 'message', data: `{"content":"${seq}"}` });

const pause = (runs: RunStore, key: RunKey, interruptId: string) =>
  runs.pause({
    ...{ ...key, interrupts: [createQuestion(interruptId)], limit: 10 },
    ...{ steps: [], request: { message: 'hi' } },
    end: { message: { content: '', isComplete: false } },
  });

const interrupted = { status: 'interrupted', message: { content: '', isComplete: false } } as const;

describe('RunStore of a host that others see as dead', () => {
  let isAlive = true;
  const test = useStore('sqlite', { isHostAlive: () => isAlive });

  it('it writes nothing for its runs, and reads them', async () => {
    const { runs } = test.store;
    const { key, session, run } = await startTestRun(test.store);
    const { owner } = key;
    isAlive = false;
    const answer = { owner, interruptId: 'q', status: 'answered' } as const;
    for (const write of [
      () => runs.start(createRunRequest(session)),
      () => flushFrames(runs, key, [frame(1)]),
      () => finishTestRun(runs, key),
      () => pause(runs, key, 'q'),
      () => runs.endInterrupt(answer),
      () => runs.claim({ ...key, from: undefined }),
    ])
      await expect(write()).rejects.toThrow(StoreError);
    expect(await runs.find(key)).toEqual(run);
    expect(await runs.open(session)).toHaveLength(1);
    isAlive = true;
    expect(await flushFrames(runs, key, [frame(1)])).toEqual({ lost: [], canceled: [] });
  });
});

describe('RunStore on a full disk', () => {
  const test = useStore('sqlite');

  it('a new message is refused, and a run that is open can end', async () => {
    const { key, session } = await startTestRun(test.store);
    const { runs } = await test.another({
      diskMinFree: Number.MAX_SAFE_INTEGER,
      hostId: test.store.runs.hostId,
    });
    await expect(runs.start(createRunRequest(session))).rejects.toMatchObject({
      code: 'disk_full',
    });
    expect(await finishTestRun(runs, key)).toMatchObject({ run: { status: 'finished' } });
  });
});

describe('RunStore with attempts of a turn', () => {
  let now = 1_000_000;
  const test = useStore('sqlite', { clock: () => now });

  it('resume stores the last frames of the dead host, and the next attempt begins a new log', async () => {
    const { runs } = test.store;
    const { key, run, session } = await startTestRun(test.store, { isResumable: true });
    await flushFrames(runs, key, [frame(1)]);
    await runs.flush([{ ...key, frames: [], steps: [{ step: 1, value: 'first' }] }]);
    const heir = await test.another();
    now += 10;
    const next = await heir.runs.resume(run, [frame(2), frame(3)]);
    if (!next) throw new Error('not resumed');
    expect(next).toMatchObject({
      ...{ attempt: 2, status: 'running', hostId: heir.runs.hostId, lastSeq: 0, startedAt: now },
    });
    const nextKey = { owner: key.owner, runId: next.runId };
    expect(await runs.find(nextKey)).toEqual(next);
    expect(await runs.find(key)).toMatchObject({ status: 'continued', lastSeq: 3, updatedAt: now });
    expect(await runs.frames({ ...key, after: 0 })).toEqual([frame(1), frame(2), frame(3)]);
    expect(await runs.frames({ ...nextKey, after: 0 })).toEqual([]);
    expect(await runs.request(nextKey)).toEqual({ message: 'hi' });
    await heir.runs.flush([{ ...nextKey, frames: [], steps: [{ step: 1, value: 'second' }] }]);
    expect(await runs.steps({ ...session, turn: 1 })).toEqual(['first', 'second']);
    expect(await flushFrames(runs, key, [frame(4)])).toMatchObject({ lost: [key.runId] });
  });

  it('resume without frames keeps the number of the last one', async () => {
    const { runs } = test.store;
    const { key } = await startTestRun(test.store);
    await flushFrames(runs, key, [frame(1), frame(2)]);
    const run = await runs.find(key);
    if (!run) throw new Error('not found');
    await runs.resume(run, []);
    expect(await runs.find(key)).toMatchObject({ status: 'continued', lastSeq: 2 });
  });

  it('a run that no host has is not resumed', async () => {
    const { runs } = test.store;
    const { run } = await startTestRun(test.store);
    expect(await runs.resume({ ...run, hostId: undefined }, [])).toBeUndefined();
    expect(await runs.resume({ ...run, owner: newOwner() }, [])).toBeUndefined();
  });

  it('current, latestAttempt and list put the attempts of a turn in order, also if their ids are not', async () => {
    const { runs } = test.store;
    const { key, run, session } = await startTestRun(test.store, {
      runId: `f${crypto.randomUUID()}`,
    });
    const next = await runs.resume(run, []);
    if (!next) throw new Error('not resumed');
    expect((await runs.current(session))?.runId).toBe(next.runId);
    await finishTestRun(runs, { ...key, runId: next.runId });
    expect((await runs.current(session))?.runId).toBe(next.runId);
    expect((await runs.latestAttempt(run))?.runId).toBe(next.runId);
    const listed = await runs.list({ ...session, fromTurn: 1 });
    expect(listed.map(({ attempt }) => attempt)).toEqual([1, 2]);
  });

  it('open returns the turns of one session that have not ended, openForOwner those of the user', async () => {
    const { runs, sessions } = test.store;
    const first = await startTestRun(test.store);
    const { owner } = first.session;
    const { sessionId } = await sessions.create({ owner, oracleDid: 'did:key:zOracle' });
    const second = await startTestRun(test.store, { owner, sessionId });
    const waiting = await startTestRun(test.store, { owner, sessionId });
    await startTestRun(test.store);
    await runs.cancel(second.key, 'aborted');
    const { hostId } = runs;
    const expected = [
      { runId: second.run.runId, sessionId, status: 'running', hostId, cancelReason: 'aborted' },
      { runId: waiting.run.runId, sessionId, status: 'queued', hostId, cancelReason: null },
    ];
    const byTurn = [second.run.runId, waiting.run.runId];
    const open = await runs.open({ owner, sessionId });
    expect([...open].sort((a, b) => byTurn.indexOf(a.runId) - byTurn.indexOf(b.runId))).toEqual(
      expected,
    );
    expect((await runs.openForOwner(owner)).map(({ runId: id }) => id).sort()).toEqual(
      [first.run.runId, ...byTurn].sort(),
    );
    await finishTestRun(runs, first.key);
    expect(await runs.open(first.session)).toEqual([]);
  });
});

describe('what RunStore encrypts', () => {
  const test = useStore('sqlite');

  it('requests, steps, data and answers cannot be read with another key', async () => {
    const { runs } = test.store;
    const { key, session } = await startTestRun(test.store);
    const { owner } = key;
    await runs.pause({
      ...{ ...key, limit: 10, request: 'secret request' },
      interrupts: [createQuestion('q', { data: 'secret data' }), createQuestion('other')],
      steps: [{ step: 1, value: 'secret step' }],
      end: { message: { content: '', isComplete: false } },
    });
    await runs.endInterrupt({ owner, interruptId: 'q', status: 'answered', value: 'secret' });
    const read = async (reader: RunStore) => {
      const interrupt = await reader.findInterrupt({ owner, interruptId: 'q' });
      const steps = await reader.steps({ ...session, turn: 1 });
      return [await reader.request(key), ...steps, interrupt?.data, interrupt?.value];
    };
    expect(await read(runs)).toEqual(['secret request', 'secret step', 'secret data', 'secret']);
    const stranger = await test.another({ secretKey: new Uint8Array(32).fill(8) });
    expect(await read(stranger.runs)).toEqual([undefined, undefined, undefined, undefined]);
  });

  it('newId returns another id each time', () => {
    const { runs } = test.store;
    const ids = [runs.newId(), runs.newId()];
    expect(ids).toEqual([expect.stringMatching(/^[0-9a-f-]{36}$/), expect.any(String)]);
    expect(ids[0]).not.toBe(ids[1]);
  });
});

// A host ends the runs of all owners.
describe('RunStore.ofHost and close', () => {
  const test = useStore('sqlite', { hasTwins: false });

  it('a run without a host is listed and ended by any', async () => {
    const { runs } = test.store;
    const { session } = await startTestRun(test.store);
    const { key } = await startTestRun(test.store, session);
    await runs.release(runs.hostId);
    expect((await runs.ofHost(undefined)).map(({ runId: id }) => id)).toEqual([key.runId]);
    const run = await runs.find(key);
    if (!run) throw new Error('not found');
    const heir = await test.another();
    const closed = await heir.runs.close(run, () => interrupted);
    expect(closed).toMatchObject({ run: { runId: key.runId, status: 'interrupted' } });
    expect(await runs.ofHost(undefined)).toEqual([]);
  });

  it('close ends a run for the host that had it only', async () => {
    const { runs } = test.store;
    const { run, key } = await startTestRun(test.store);
    const heir = await test.another();
    const foreign = { ...run, hostId: heir.runs.hostId };
    expect(await heir.runs.close(foreign, () => interrupted)).toBeUndefined();
    expect(await runs.find(key)).toMatchObject({ status: 'running' });
    expect(await heir.runs.close(run, () => interrupted)).toMatchObject({
      run: { runId: run.runId },
    });
  });

  it('a pass over the runs of a host takes 500 at most', async () => {
    const { runs } = await test.another();
    const session = await openTestSession(test.store);
    const limits = { live: 1000, waiting: 1000 };
    for (let i = 0; i < 501; i++) await runs.start(createRunRequest({ ...session, limits }));
    expect(await runs.ofHost(runs.hostId)).toHaveLength(500);
  });
});

describe('TurnStore.list', () => {
  let now = 1_000_000;
  const test = useStore('sqlite', { clock: () => now });

  /** Two ended turns and an open one, then an ended one in a second session; one millisecond apart. */
  async function createTurns() {
    const { runs, sessions } = test.store;
    const first = await openTestSession(test.store);
    const { owner } = first;
    const { sessionId } = await sessions.create({ owner, oracleDid: 'did:key:zOracle' });
    const ids: string[] = [];
    for (const [i, session] of [first, first, first, { owner, sessionId }].entries()) {
      now += 1;
      const { key } = await startTestRun(test.store, { ...session, runId: runs.newId() });
      ids.push(key.runId);
      const status = i === 1 ? 'failed' : 'finished';
      if (i !== 2) await finishTestRun(runs, key, { status });
    }
    const list = async (query: Partial<Parameters<typeof test.store.turns.list>[0]>) => {
      const { turns, total } = await test.store.turns.list({ owner, limit: 10, ...query });
      return [turns.map(({ latest }) => ids.indexOf(latest.runId)), total];
    };
    return { ids, list, first, second: sessionId, last: now };
  }

  it('returns the newest first, before a given one, and counts all of them', async () => {
    const { ids, list } = await createTurns();
    expect(await list({})).toEqual([[3, 2, 1, 0], 4]);
    expect(await list({ limit: 2 })).toEqual([[3, 2], 4]);
    expect(await list({ limit: 2, before: ids[2] })).toEqual([[1, 0], 4]);
    expect(await list({ before: ids[0] })).toEqual([[], 4]);
    expect(await list({ owner: newOwner() })).toEqual([[], 0]);
  });

  it('returns those of a session, of some states, or changed since a time', async () => {
    const { list, first, second, last } = await createTurns();
    expect(await list({ sessionId: first.sessionId })).toEqual([[2, 1, 0], 3]);
    expect(await list({ sessionId: second })).toEqual([[3], 1]);
    expect(await list({ sessionId: 'unknown' })).toEqual([[], 0]);
    expect(await list({ statuses: ['failed', 'running'] })).toEqual([[2, 1], 2]);
    expect(await list({ statuses: [] })).toEqual([[], 0]);
    expect(await list({ updatedAfter: last - 1 })).toEqual([[3, 2], 2]);
    expect(await list({ updatedAfter: last + 1 })).toEqual([[], 0]);
  });

  it('an attempt that was continued is listed as the first of its turn only, also if its state is asked for', async () => {
    const { runs, turns } = test.store;
    const { first: session } = await createTurns();
    const { owner } = session;
    const [open] = await runs.open(session);
    const key = { owner, runId: open?.runId ?? '' };
    let latest = await runs.find(key);
    for (const _ of [2, 3]) latest = latest && (await runs.resume(latest, []));
    const statuses = ['continued', 'running'] as const;
    expect(await turns.list({ owner, limit: 10, statuses })).toEqual({
      turns: [{ first: await runs.find(key), latest }],
      total: 1,
    });
    expect(latest).toMatchObject({ turn: 3, attempt: 3 });
  });

  it('the first attempts of turns with the same number in two sessions of a user are kept apart', async () => {
    const { runs, turns } = test.store;
    const { first, second } = await createTurns();
    const { owner } = first;
    const other = { owner, sessionId: second };
    await finishTestRun(runs, (await startTestRun(test.store, other)).key);
    await startTestRun(test.store, other);
    const expected: string[] = [];
    for (const session of [first, other]) {
      const run = await runs.current(session);
      const next = run && (await runs.resume(run, []));
      expect(next).toMatchObject({ turn: 3, attempt: 2 });
      expected.push(`${run?.runId} ${next?.runId}`);
    }
    const { turns: listed } = await turns.list({ owner, limit: 10, statuses: ['running'] });
    expect(listed.map((turn) => `${turn.first.runId} ${turn.latest.runId}`).sort()).toEqual(
      expected.sort(),
    );
  });
});

describe('hasEnded and hasStopped', () => {
  it('a paused run has stopped but not ended, and an open one has done neither', () => {
    const check = (status: Parameters<typeof hasStopped>[0]['status']) => [
      hasEnded({ status }),
      hasStopped({ status }),
    ];
    expect(check('queued')).toEqual([false, false]);
    expect(check('running')).toEqual([false, false]);
    expect(check('paused')).toEqual([false, true]);
    for (const status of ['finished', 'aborted', 'interrupted', 'failed', 'continued'] as const)
      expect(check(status)).toEqual([true, true]);
  });
});
