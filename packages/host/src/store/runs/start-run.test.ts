import { describe, expect, it } from 'vitest';
import { allMessages } from '../../../test/support/all-messages.js';
import { engines, newOwner, useStore } from '../../../test/support/test-database.js';
import {
  createRunRequest,
  expectStarted,
  finishTestRun,
  openTestSession,
  startTestRun,
} from '../../../test/support/test-runs.js';
import type { RunKey } from '../schema/runs.js';
import type { Store } from '../store.js';

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
