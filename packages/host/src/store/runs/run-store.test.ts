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
import type { RunKey } from '../schema/runs.js';
import type { Store } from '../store.js';
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
      { type: 'human', content: 'hi', runId: run.runId },
    ]);
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
      runId: run.runId,
      turn: 1,
      parent: stored[0]?.id,
    });
    expect(await flushFrames(runs, key, framesFrom(4, 1))).toMatchObject({ lost: [run.runId] });
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
    const foreign = { owner: newOwner(), runId: run.runId };
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
    expect((await runs.current(session))?.runId).toBe(first.runId);
    const inOrder = waiting.map(({ run }) => run).sort((a, b) => a.turn - b.turn);
    let last = key;
    for (const next of inOrder) {
      const ended = await finishTestRun(runs, last);
      expect(ended?.next).toMatchObject({
        runId: next.runId,
        status: 'running',
        startedAt: expect.any(Number),
      });
      last = next;
    }
    expect((await finishTestRun(runs, last, { status: 'aborted' }))?.next).toBeUndefined();
    expect(await runs.current(session)).toMatchObject({ runId: last.runId, status: 'aborted' });
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
        started.map(({ owner, runId }) => runs.find({ owner, runId })),
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
    expect(ended?.next).toMatchObject({ runId: queued.run.runId, status: 'running', hostId });
    expect(ended?.next?.startedAt).toBeUndefined();
    expect(await runs.claim({ ...queued.key, from: undefined })).toBeUndefined();
    const claims = await Promise.all(
      [runs, other.runs, runs, other.runs].map((each) =>
        each.claim({ ...queued.key, from: hostId }),
      ),
    );
    expect(claims.filter((claimed) => claimed !== undefined)).toHaveLength(1);
  });
});

describe.each(engines)('RunStore with several sessions of a user on %s', (engine) => {
  const test = useStore(engine);

  /** Two turns in each of two sessions of one user; the first turns run. */
  async function startTurns() {
    const first = await openTestSession(test.store);
    const { owner } = first;
    const oracleDid = 'did:key:zOracle';
    const { sessionId } = await test.store.sessions.create({ owner, oracleDid });
    const start = (session: typeof first) => startTestRun(test.store, session);
    const others = [await start(first), await start(first)] as const;
    const second = { owner, sessionId };
    return { others, turns: [await start(second), await start(second)] as const };
  }

  it('RunStore.resume continues one running run of a host, once, and countCrashes counts it', async () => {
    const { runs } = test.store;
    const { others, turns } = await startTurns();
    const [{ run }, waiting] = turns;
    const heir = await test.another();
    expect(await heir.runs.resume({ ...run, hostId: heir.runs.hostId }, [])).toBeUndefined();
    expect(await heir.runs.resume(waiting.run, [])).toBeUndefined();
    const next = await heir.runs.resume(run, []);
    if (!next) throw new Error('not resumed');
    expect(next).toMatchObject({ sessionId: run.sessionId, turn: 1, attempt: 2 });
    expect(await heir.runs.resume(run, [])).toBeUndefined();
    expect(await runs.find(others[0].key)).toMatchObject({ status: 'running' });
    expect(await runs.countCrashes(others[0].run)).toBe(0);
    expect(await runs.countCrashes(waiting.run)).toBe(0);
    expect(await runs.countCrashes(run)).toBe(1);
    expect((await runs.latestAttempt(run))?.runId).toBe(next.runId);
    expect((await runs.latestAttempt(waiting.run))?.runId).toBe(waiting.run.runId);
    expect((await runs.latestAttempt(others[0].run))?.runId).toBe(others[0].run.runId);
    expect(await runs.latestAttempt({ ...run, owner: newOwner() })).toBeUndefined();
    const { turns: listed, total } = await test.store.turns.list({ owner: run.owner, limit: 10 });
    expect(total).toBe(4);
    expect(listed.find(({ latest }) => latest.runId === next.runId)?.first.runId).toBe(run.runId);
    expect(listed.map(({ latest }) => latest.runId)).not.toContain(run.runId);
  });

  it('RunStore.countCrashes does not count an attempt that was paused', async () => {
    const { runs } = test.store;
    const { key, run } = await startTestRun(test.store);
    const question = { id: 'q', kind: 'input_required', callId: 'c', path: '' } as const;
    await runs.pause({
      ...{ ...key, limit: 10, steps: [], request: {} },
      interrupts: [{ ...question, schema: {}, expiresInMs: 60_000 }],
      end: { message: { content: '', isComplete: false } },
    });
    const answer = { owner: key.owner, interruptId: 'q', status: 'answered' } as const;
    expect(await runs.endInterrupt(answer)).toMatchObject({ state: 'continued' });
    expect(await runs.countCrashes(run)).toBe(0);
  });

  it('TurnStore.list returns the first and the latest run of each turn, up to the limit', async () => {
    const { turns, runs } = test.store;
    const { others, turns: ofSession } = await startTurns();
    const [{ key, run }, { run: second }] = ofSession;
    await finishTestRun(runs, key);
    const promoted = await runs.find({ owner: run.owner, runId: second.runId });
    const next = promoted && (await runs.resume(promoted, []));
    const { owner } = run;
    const all = await turns.list({ owner, limit: 10 });
    const toIds = ({ first, latest }: (typeof all.turns)[number]) =>
      `${first.runId} ${latest.runId}`;
    const same = [...others.map((each) => each.run.runId), run.runId].map((id) => `${id} ${id}`);
    expect(all.total).toBe(4);
    expect(all.turns.map(toIds).sort()).toEqual([...same, `${second.runId} ${next?.runId}`].sort());
    expect((await turns.list({ owner, limit: 3 })).turns).toHaveLength(3);
  });

  it('RunStore.current and list return runs of their session only', async () => {
    const { runs } = test.store;
    const { others, turns } = await startTurns();
    const { session } = turns[0];
    expect((await runs.current(session))?.runId).toBe(turns[0].run.runId);
    expect((await runs.current(others[0].session))?.runId).toBe(others[0].run.runId);
    const list = async (fromTurn: number) =>
      (await runs.list({ ...session, fromTurn })).map(({ runId: id }) => id);
    expect(await list(1)).toEqual(turns.map(({ run }) => run.runId));
    expect(await list(2)).toEqual([turns[1].run.runId]);
    const limits = { live: 200, waiting: 200 };
    for (let i = 0; i < 99; i++) await startTestRun(test.store, { ...session, limits });
    expect(await list(1)).toHaveLength(100);
  });

  it('RunStore.claim takes one promoted run that has not started', async () => {
    const { runs } = test.store;
    const other = await test.another();
    const { others, turns } = await startTurns();
    const from = runs.hostId;
    for (const { key } of [...others, ...turns])
      expect(await other.runs.claim({ ...key, from })).toBeUndefined();
    const queued = [];
    for (const { key, session } of [others[0], turns[0]]) {
      await runs.withdraw({
        owner: key.owner,
        runId: (await runs.list({ ...session, fromTurn: 2 }))[0]?.runId ?? '',
      });
      queued.push(await startTestRun(other, session));
      await finishTestRun(runs, key);
    }
    const [first, second] = queued;
    if (!first || !second) throw new Error('not started');
    const claimed = await runs.claim({ ...second.key, from: other.runs.hostId });
    expect(claimed).toMatchObject({ runId: second.run.runId, hostId: runs.hostId });
    const left = await runs.find(first.key);
    expect(left).toMatchObject({ status: 'running', hostId: other.runs.hostId });
    expect(left?.startedAt).toBeUndefined();
  });
});

// A host ends the runs of all owners.
describe.each(engines)('RunStore of hosts that end on %s', (engine) => {
  const test = useStore(engine, { hasTwins: false });

  it('giveBack makes a run available that has written nothing but its first frame', async () => {
    const { runs } = test.store;
    const start = async () => (await startTestRun(test.store)).key;
    const [begun, written, acted] = [await start(), await start(), await start()];
    await flushFrames(runs, begun, framesFrom(1, 1));
    await flushFrames(runs, written, framesFrom(1, 2));
    await runs.flush([{ ...acted, frames: [], steps: [{ step: 1, value: {} }] }]);
    const other = await test.another();
    expect(await other.runs.giveBack(begun)).toBeUndefined();
    const given = await runs.giveBack(begun);
    expect(given).toMatchObject({ runId: begun.runId });
    expect([given?.hostId, given?.startedAt]).toEqual([undefined, undefined]);
    expect(await other.runs.claim({ ...begun, from: undefined })).toBeDefined();
    for (const key of [written, acted]) {
      expect(await runs.giveBack(key)).toBeUndefined();
      expect(await runs.find(key)).toMatchObject({ hostId: runs.hostId, status: 'running' });
    }
  });

  it('release makes the queued runs of a host available to the one that ends the turn before', async () => {
    const { runs } = test.store;
    const other = await test.another();
    const { session, key } = await startTestRun(test.store);
    const queued = await startTestRun(other, session);
    await runs.release(other.runs.hostId);
    expect((await runs.find(key))?.hostId).toBe(runs.hostId);
    expect(await runs.hosts()).toEqual(expect.arrayContaining([undefined, runs.hostId]));
    const ended = await finishTestRun(runs, key);
    expect(ended?.next).toMatchObject({ runId: queued.run.runId, hostId: runs.hostId });
    expect(await runs.request(queued.key)).toEqual({ message: 'hi' });
  });

  it('a host that stops leaves the next run to others', async () => {
    const { runs } = test.store;
    const { session, key } = await startTestRun(test.store);
    const queued = await startTestRun(test.store, session);
    await runs.release(runs.hostId);
    const ended = await finishTestRun(runs, key, {}, false);
    expect(ended?.next).toMatchObject({ runId: queued.run.runId, status: 'running' });
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
      next: { runId: queued.run.runId, startedAt: expect.any(Number) },
    });
    expect(await finishTestRun(test.store.runs, key)).toBeUndefined();
  });

  it('release, hosts and ofHost concern the queued and running runs of one host', async () => {
    const { runs } = test.store;
    const [ending, other] = [await test.another(), await test.another()];
    const { session, key } = await startTestRun(ending);
    const withdrawn = await startTestRun(ending, session);
    await ending.runs.withdraw(withdrawn.key);
    const canceled = await startTestRun(ending, session);
    const queued = await startTestRun(ending, { ...session, multitask: 'interrupt' });
    const foreign = await startTestRun(other, session);
    const listIds = async (hostId: string) =>
      (await runs.ofHost(hostId)).map(({ runId: id }) => id);
    const { hostId } = ending.runs;
    expect((await listIds(hostId)).sort()).toEqual(
      [key.runId, canceled.run.runId, queued.run.runId].sort(),
    );
    expect(await listIds(other.runs.hostId)).toEqual([foreign.run.runId]);
    await runs.release(hostId);
    const findHost = async (runKey: typeof key) => (await runs.find(runKey))?.hostId;
    expect(await findHost(queued.key)).toBeUndefined();
    for (const each of [withdrawn, canceled]) expect(await findHost(each.key)).toBe(hostId);
    expect(await findHost(foreign.key)).toBe(other.runs.hostId);
    const hosts = await runs.hosts();
    expect(new Set(hosts).size).toBe(hosts.length);
    const idle = await test.another();
    await finishTestRun(idle.runs, (await startTestRun(idle)).key);
    expect(await runs.hosts()).not.toContain(idle.runs.hostId);
  });
});

const oracleDid = 'did:key:zOracle';

/** Two sessions of one user. */
async function openSessions(store: Store) {
  const first = await openTestSession(store);
  const { owner } = first;
  const { sessionId } = await store.sessions.create({ owner, oracleDid });
  return [first, { owner, sessionId }] as const;
}

describe.each(engines)('RunStore.start on %s', (engine) => {
  const test = useStore(engine);

  /** Ends a run so that the same request may be repeated. */
  const failToAnswer = (key: RunKey) =>
    finishTestRun(test.store.runs, key, {
      status: 'interrupted',
      report: { error: { code: 'host_stopping', message: 'The host stops' } },
    });

  const withKey = (key: string) => ({
    idempotency: { key, bodyHash: 'h', expiresAt: Date.now() + 60_000 },
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
    expect(interrupting.canceled.map(({ runId: id }) => id)).toContain(run.runId);
    expect(interrupting.canceled).toHaveLength(2);
    const ended = await finishTestRun(runs, run, { status: 'interrupted' });
    expect(ended?.next?.runId).toBe(interrupting.run.runId);
  });

  it('start starts one run for 50 requests with the same key', async () => {
    const session = await openTestSession(test.store);
    const idempotency = { key: 'k', bodyHash: 'h', expiresAt: Date.now() + 60_000 };
    const start = (overrides: object) =>
      test.store.runs.start(createRunRequest({ ...session, idempotency, ...overrides }));
    const results = await Promise.all(Array.from({ length: 50 }, () => start({})));
    const runs = results.filter((result) => result.state === 'started');
    expect(runs).toHaveLength(1);
    const runId = runs[0]?.run.runId;
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

  it('RunStore.start interrupts the open runs of its session that are not canceled yet', async () => {
    const { runs } = test.store;
    const [first, second] = await openSessions(test.store);
    const other = await startTestRun(test.store, first);
    const ended = await startTestRun(test.store, second);
    await finishTestRun(runs, ended.key);
    const aborted = await startTestRun(test.store, second);
    await runs.cancel(aborted.key, 'aborted');
    const waiting = await startTestRun(test.store, second);
    const last = await startTestRun(test.store, { ...second, multitask: 'interrupt' });
    const reasons = [other, ended, aborted, waiting, last].map(
      async ({ key }) => (await runs.find(key))?.cancelReason,
    );
    const none = undefined;
    expect(await Promise.all(reasons)).toEqual([none, none, 'aborted', 'interrupted', none]);
  });

  it('RunStore.start repeats a turn without an answer unless a later one exists, and returns the run of others', async () => {
    const { runs } = test.store;
    const [first, second] = await openSessions(test.store);
    const repeat = (session: typeof first, key: string) =>
      runs.start(createRunRequest({ ...session, ...withKey(key) }));
    for (const key of ['a', 'b']) {
      const { key: runKey } = await startTestRun(test.store, { ...first, ...withKey(key) });
      await finishTestRun(runs, runKey);
    }
    const answered = await startTestRun(test.store, { ...second, ...withKey('answered') });
    await finishTestRun(runs, answered.key, { content: 'hello' });
    const failed = await startTestRun(test.store, { ...second, ...withKey('failed') });
    await failToAnswer(failed.key);
    const unrelated = await startTestRun(test.store, { ...first, ...withKey('c') });
    await failToAnswer(unrelated.key);
    const again = expectStarted(await repeat(second, 'failed'));
    expect(again).toMatchObject({ sessionId: second.sessionId, turn: 2, attempt: 2 });
    // Other turns of the user have a later attempt.
    expect(await repeat(second, 'answered')).toEqual({
      state: 'existing',
      runId: answered.run.runId,
    });
    expect(await repeat(first, 'b')).toMatchObject({ state: 'existing' });
    const third = expectStarted(await repeat(first, 'c'));
    expect(third).toMatchObject({ sessionId: first.sessionId, turn: 3, attempt: 2 });
    expect(await repeat(second, 'failed')).toEqual({ state: 'existing', runId: again.runId });
    await failToAnswer(again);
    await startTestRun(test.store, second);
    expect(await repeat(second, 'failed')).toEqual({ state: 'superseded' });
  });
});

describe.each(engines)('RunStore.withdraw on %s', (engine) => {
  const test = useStore(engine);

  it('RunStore.withdraw takes back one message that waits', async () => {
    const { runs } = test.store;
    const [first, second] = await openSessions(test.store);
    const send = (session: typeof first, content: string) =>
      startTestRun(test.store, { ...session, message: { content } });
    await send(first, 'other 1');
    const other = await send(first, 'other 2');
    const running = await send(second, 'one');
    const waiting = await send(second, 'two');
    const last = await send(second, 'three');
    expect(await runs.withdraw(waiting.key)).toMatchObject({
      state: 'withdrawn',
      run: { runId: waiting.run.runId, status: 'aborted' },
    });
    for (const { key } of [other, last])
      expect(await runs.find(key)).toMatchObject({ status: 'queued' });
    const readContents = async (session: typeof first) =>
      (await allMessages(test.store, session)).map(({ content }) => content);
    expect(await readContents(first)).toEqual(['other 1', 'other 2']);
    expect(await readContents(second)).toEqual(['one', 'three']);
    expect(await runs.withdraw(waiting.key)).toEqual({ state: 'begun' });
    expect(await runs.withdraw(running.key)).toEqual({ state: 'begun' });
    expect(await runs.withdraw({ ...last.key, owner: newOwner() })).toEqual({ state: 'unknown' });
    expect(await runs.withdraw({ ...last.key, runId: 'none' })).toEqual({ state: 'unknown' });
  });

  it('RunStore.withdraw leaves a run that is canceled to its host', async () => {
    const { runs } = test.store;
    const { session } = await startTestRun(test.store);
    const waiting = await startTestRun(test.store, session);
    await startTestRun(test.store, { ...session, multitask: 'interrupt' });
    expect(await runs.withdraw(waiting.key)).toEqual({ state: 'begun' });
    expect(await runs.find(waiting.key)).toMatchObject({ status: 'queued' });
  });
});
