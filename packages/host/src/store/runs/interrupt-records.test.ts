import { describe, expect, it } from 'vitest';
import { allMessages } from '../../../test/support/all-messages.js';
import { newOwner, useStore } from '../../../test/support/test-database.js';
import { createApproval, createQuestion } from '../../../test/support/test-interrupts.js';
import { finishTestRun, flushFrames, startTestRun } from '../../../test/support/test-runs.js';
import type { RunKey } from '../schema/runs.js';
import type { RunStore } from './run-store.js';

type Pause = Parameters<RunStore['pause']>[0];

const frame = (seq: number) => ({ seq, event: 'message', data: `{"content":"${seq}"}` });

const pause = (runs: RunStore, key: RunKey, changes: Partial<Pause> = {}) =>
  runs.pause({
    ...key,
    interrupts: [],
    limit: 10,
    steps: [],
    request: {},
    end: { message: { content: '', isComplete: false } },
    ...changes,
  });

describe('what RunStore.pause stores', () => {
  let now = 1_000_000;
  const test = useStore('sqlite', { clock: () => now });

  it('a paused run keeps its request, steps, log, usage, report and partial answer, and has no host', async () => {
    const { runs, activity } = test.store;
    const { key, run, session } = await startTestRun(test.store);
    now += 5;
    const called = { owner: key.owner, id: 'call 1', kind: 'tool_call', createdAt: now } as const;
    const paused = await pause(runs, key, {
      request: { message: 'sealed' },
      steps: [1, 2].map((step) => ({ step, value: `step ${step}` })),
      end: {
        message: { content: 'part', isComplete: false },
        frames: [frame(1), frame(2)],
        usage: { input: 1, output: 2, cached: 3 },
        report: { pending: [{ id: 'q', kind: 'input_required' }] },
        activity: [called],
      },
    });
    expect(paused).toEqual({ state: 'paused', run: await runs.find(key) });
    expect(await runs.find(key)).toEqual({
      ...run,
      status: 'paused',
      hostId: undefined,
      updatedAt: now,
      lastSeq: 2,
      usage: { input: 1, output: 2, cached: 3 },
      report: { pending: [{ id: 'q', kind: 'input_required' }] },
    });
    expect(await runs.request(key)).toEqual({ message: 'sealed' });
    expect(await runs.steps({ ...session, turn: 1 })).toEqual(['step 1', 'step 2']);
    expect(await runs.frames({ ...key, after: 0 })).toEqual([frame(1), frame(2)]);
    expect((await activity.list({ owner: key.owner, limit: 10 })).map(({ id }) => id)).toEqual([
      'call 1',
    ]);
    expect((await allMessages(test.store, session))[1]).toMatchObject({
      id: run.messageId,
      content: 'part',
      isComplete: false,
    });
  });

  it('a pause without further frames keeps the number of the last one', async () => {
    const { runs } = test.store;
    const { key } = await startTestRun(test.store);
    await flushFrames(runs, key, [frame(1), frame(2), frame(3)]);
    await pause(runs, key);
    expect(await runs.find(key)).toMatchObject({ lastSeq: 3, report: {} });
  });

  it('a question is stored with its call, schema, data and the time until which it waits', async () => {
    const { runs } = test.store;
    const { key, session } = await startTestRun(test.store);
    const { owner, runId } = key;
    const schema = { type: 'string' } as const;
    const data = { text: 'Which one?' };
    const changes = { path: 'sub agent', schema, expiresInMs: 500, data };
    await pause(runs, key, {
      interrupts: [createQuestion('b', changes), createQuestion('a')],
    });
    const question = {
      ...{ id: 'b', owner, runId, sessionId: session.sessionId, turn: 1, callId: 'call of b' },
      ...{ kind: 'input_required', path: 'sub agent', schema, status: 'open' },
      ...{ createdAt: now, expiresAt: now + 500, data },
      ...{ nextRunId: undefined, value: undefined },
    };
    expect(await runs.findInterrupt({ owner, interruptId: 'b' })).toEqual(question);
    const listed = await runs.interrupts({ ...session, turn: 1 });
    expect(listed.map(({ id }) => id)).toEqual(['b', 'a']);
    expect(listed[0]).toEqual(question);
    expect(listed[1]?.data).toBeUndefined();
  });

  it('questions of a turn are listed in the order in which they were asked', async () => {
    const { runs } = test.store;
    const { key, session } = await startTestRun(test.store);
    const { owner } = key;
    await pause(runs, key, { interrupts: [createQuestion('z')] });
    const end = await runs.endInterrupt({ owner, interruptId: 'z', status: 'answered' });
    if (end.state !== 'continued') throw new Error(end.state);
    now += 1;
    const next = { owner, runId: end.run.runId };
    await pause(runs, next, { interrupts: [createQuestion('y'), createQuestion('x')] });
    const listed = await runs.interrupts({ ...session, turn: 1 });
    expect(listed.map(({ id }) => id)).toEqual(['z', 'y', 'x']);
  });

  it('the limit of paused runs counts those of one user that still wait', async () => {
    const { runs, sessions } = test.store;
    const { key } = await startTestRun(test.store);
    const { owner } = key;
    await pause(runs, (await startTestRun(test.store)).key, { limit: 1 });
    expect(await pause(runs, key, { limit: 1 })).toMatchObject({ state: 'paused' });
    await runs.cancel(key, 'aborted');
    const { sessionId } = await sessions.create({ owner, oracleDid: 'did:key:zOracle' });
    const other = await startTestRun(test.store, { owner, sessionId });
    expect(await pause(runs, other.key, { limit: 0 })).toEqual({ state: 'too-many' });
    expect(await runs.find(other.key)).toMatchObject({ status: 'running' });
    expect(await pause(runs, other.key, { limit: 1 })).toMatchObject({ state: 'paused' });
  });

  it('a canceled run is reported as lost to a host that does not have it, and a run that ended to all', async () => {
    const { runs } = test.store;
    const { key } = await startTestRun(test.store);
    await runs.cancel(key, 'aborted');
    const other = await test.another();
    expect(await pause(other.runs, key)).toEqual({ state: 'lost' });
    expect(await pause(runs, key)).toEqual({ state: 'canceled', reason: 'aborted' });
    await finishTestRun(runs, key, { status: 'aborted' });
    expect(await pause(runs, key)).toEqual({ state: 'lost' });
  });
});

describe('what RunStore.endInterrupt stores', () => {
  let now = 1_000_000;
  const test = useStore('sqlite', { clock: () => now });

  /** What was decided about approvals, oldest first. */
  async function listDecisions(owner: string) {
    const entries = await test.store.activity.list({ owner, limit: 10 });
    const decided = entries.filter(({ kind }) => kind === 'approval_decided').reverse();
    return decided.map(({ approvalId, outcome, decidedBy }) => [approvalId, outcome, decidedBy]);
  }

  it('the next attempt belongs to the same turn and answer, and counts its own usage and log', async () => {
    const { runs } = test.store;
    const { key, run } = await startTestRun(test.store, { traceparent: '00-trace' });
    const { owner } = key;
    await pause(runs, key, {
      interrupts: [createQuestion('q')],
      request: { message: 'again' },
      end: {
        message: { content: 'part', isComplete: false },
        frames: [frame(1)],
        usage: { input: 1, output: 2, cached: 3 },
        report: { cost: 1 },
      },
    });
    now += 10;
    const heir = await test.another();
    const end = await heir.runs.endInterrupt({ owner, interruptId: 'q', status: 'answered' });
    if (end.state !== 'continued') throw new Error(end.state);
    const next = { owner, runId: end.run.runId };
    expect(end.run).toEqual({
      ...run,
      ...{ runId: end.run.runId, attempt: 2, hostId: heir.runs.hostId },
      ...{ createdAt: now, startedAt: now, updatedAt: now },
    });
    expect(end.run.runId).not.toBe(run.runId);
    expect(end.run.traceparent).toBe('00-trace');
    expect(await runs.find(next)).toEqual(end.run);
    expect(await runs.request(next)).toEqual({ message: 'again' });
    expect(await runs.find(key)).toMatchObject({
      ...{ status: 'continued', updatedAt: now, lastSeq: 1, report: { cost: 1 } },
    });
    expect(await runs.request(key)).toBeUndefined();
  });

  it('an answer is accepted until the time of the question, not at it', async () => {
    const { runs } = test.store;
    const { key } = await startTestRun(test.store);
    const { owner } = key;
    const interrupts = ['a', 'b', 'c'].map((id) => createQuestion(id, { expiresInMs: 100 }));
    await pause(runs, key, { interrupts });
    const end = (interruptId: string, status: 'answered' | 'expired') =>
      runs.endInterrupt({ owner, interruptId, status, value: 'yes' });
    now += 99;
    expect(await end('a', 'answered')).toMatchObject({ state: 'waiting' });
    now += 1;
    expect(await end('b', 'answered')).toMatchObject({
      state: 'closed',
      interrupt: { id: 'b', status: 'open' },
    });
    expect(await runs.findInterrupt({ owner, interruptId: 'b' })).toMatchObject({ status: 'open' });
    expect(await end('b', 'expired')).toMatchObject({ state: 'waiting', pending: [{ id: 'c' }] });
    expect(await end('c', 'expired')).toMatchObject({ state: 'continued' });
  });

  it('an approval that expires is recorded as decided by the host, a question and an answer are not', async () => {
    const { runs } = test.store;
    const { key } = await startTestRun(test.store);
    const { owner } = key;
    const interrupts = [createApproval('late'), createApproval('fine'), createQuestion('question')];
    await pause(runs, key, { interrupts });
    await runs.endInterrupt({ owner, interruptId: 'question', status: 'expired' });
    await runs.endInterrupt({ owner, interruptId: 'fine', status: 'answered' });
    expect(await listDecisions(owner)).toEqual([]);
    await runs.endInterrupt({ owner, interruptId: 'late', status: 'expired' });
    expect(await listDecisions(owner)).toEqual([['late', 'expired', 'host']]);
    expect(await runs.findInterrupt({ owner, interruptId: 'late' })).toMatchObject({
      status: 'expired',
      value: undefined,
    });
  });

  it('the questions of two users with the same id end independently', async () => {
    const { runs } = test.store;
    const [first, second] = [await startTestRun(test.store), await startTestRun(test.store)];
    for (const { key } of [first, second])
      await pause(runs, key, { interrupts: [createQuestion('same')] });
    const end = { owner: second.key.owner, interruptId: 'same', status: 'answered' } as const;
    expect(await runs.endInterrupt(end)).toMatchObject({ state: 'continued' });
    expect(await runs.find(first.key)).toMatchObject({ status: 'paused' });
    const other = await runs.findInterrupt({ owner: first.key.owner, interruptId: 'same' });
    expect([other?.status, other?.nextRunId]).toEqual(['open', undefined]);
  });
});

describe('what RunStore.cancel stores', () => {
  let now = 1_000_000;
  const test = useStore('sqlite', { clock: () => now });

  it('a running run keeps the first reason and its status', async () => {
    const { runs } = test.store;
    const { key, run } = await startTestRun(test.store);
    expect(await runs.cancel(key, 'interrupted')).toEqual({
      run: { ...run, cancelReason: 'interrupted' },
    });
    expect(await runs.cancel(key, 'aborted')).toMatchObject({
      run: { status: 'running', cancelReason: 'interrupted' },
    });
  });

  it('a paused run ends without its request and steps, and each open approval is recorded', async () => {
    const { runs, activity } = test.store;
    const { key, session } = await startTestRun(test.store);
    const { owner } = key;
    await pause(runs, key, {
      interrupts: [createApproval('approval')],
      steps: [{ step: 1, value: 'step' }],
      request: { message: 'hi' },
    });
    now += 7;
    expect(await runs.cancel({ ...key, owner: newOwner() }, 'aborted')).toEqual({});
    const { run } = await runs.cancel(key, 'aborted');
    expect(run).toMatchObject({ runId: key.runId, status: 'aborted', updatedAt: now });
    expect(await runs.request(key)).toBeUndefined();
    expect(await runs.steps({ ...session, turn: 1 })).toEqual([]);
    const [entry] = await activity.list({ owner, limit: 1 });
    expect(entry).toMatchObject({
      kind: 'approval_decided',
      outcome: 'cancelled',
      decidedBy: 'host',
    });
  });

  it('a new message ends the paused run of its session as interrupted', async () => {
    const { runs } = test.store;
    const { key, session } = await startTestRun(test.store);
    await pause(runs, key, { interrupts: [createQuestion('q')] });
    await startTestRun(test.store, session);
    expect(await runs.find(key)).toMatchObject({ status: 'interrupted' });
    const answer = { owner: key.owner, interruptId: 'q', status: 'answered' } as const;
    expect(await runs.endInterrupt(answer)).toMatchObject({
      state: 'closed',
      interrupt: { id: 'q', status: 'cancelled', answered_at: now },
    });
  });

  it('the next run is left to the host that accepted it', async () => {
    const { runs } = test.store;
    const other = await test.another();
    const { key, session } = await startTestRun(test.store);
    await pause(runs, key);
    const waiting = await startTestRun(other, { ...session, waitsForPaused: true });
    const { next } = await runs.cancel(key, 'aborted');
    expect(next).toMatchObject({ runId: waiting.run.runId, hostId: other.runs.hostId });
    expect(next?.startedAt).toBeUndefined();
  });
});

// They are ended for all owners.
describe('RunStore.expiredInterrupts by the clock', () => {
  let now = 1_000_000;
  const test = useStore('sqlite', { hasTwins: false, clock: () => now });

  it('returns a question from its time on, of any user', async () => {
    const { runs } = test.store;
    const { key } = await startTestRun(test.store);
    await pause(runs, key, { interrupts: [createQuestion('q', { expiresInMs: 100 })] });
    now += 99;
    expect(await runs.expiredInterrupts()).toEqual([]);
    now += 1;
    expect(await runs.expiredInterrupts()).toEqual([{ owner: key.owner, interruptId: 'q' }]);
  });
});
