import { describe, expect, it } from 'vitest';
import { allMessages } from '../../../test/support/all-messages.js';
import { engines, newOwner, useStore } from '../../../test/support/test-database.js';
import {
  copySession,
  createRunRequest,
  finishTestRun,
  startTestRun,
} from '../../../test/support/test-runs.js';

const oracleDid = 'did:key:zOracle';

describe.each(engines)('RunStore.finish on %s', (engine) => {
  let now = 1_700_000_000_000;
  const test = useStore(engine, { clock: () => now });

  /** A user with a running turn in each of two sessions, the second of which has another that waits. */
  async function startTurns() {
    const first = await startTestRun(test.store);
    const { owner } = first.session;
    const { sessionId } = await test.store.sessions.create({ owner, oracleDid });
    const second = await startTestRun(test.store, { owner, sessionId });
    const waiting = await startTestRun(test.store, { owner, sessionId });
    return { first, second, waiting };
  }

  it('RunStore.finish deletes the steps of its turn only', async () => {
    const { runs } = test.store;
    const { first, second, waiting } = await startTurns();
    for (const { key, run } of [first, second, waiting])
      await runs.flush([{ ...key, frames: [], steps: [{ step: 1, value: run.runId }] }]);
    const listSteps = () =>
      Promise.all(
        [first, second, waiting].map(({ session, run }) =>
          runs.steps({ ...session, turn: run.turn }),
        ),
      );
    expect(await listSteps()).toEqual([[first.run.runId], [second.run.runId], [waiting.run.runId]]);
    await finishTestRun(runs, second.key);
    expect(await listSteps()).toEqual([[first.run.runId], [], [waiting.run.runId]]);
  });

  it('RunStore.finish keeps the steps of a later turn whose run has the id of one of another user', async () => {
    const { runs } = test.store;
    const first = await startTestRun(test.store);
    const waiting = await startTestRun(test.store, first.session);
    const session = await copySession(test.store, newOwner(), first.session);
    const foreign = await startTestRun(test.store, { ...session, runId: waiting.run.runId });
    expect([first, waiting, foreign].map(({ run }) => run.turn)).toEqual([1, 2, 1]);
    for (const [n, { key }] of [first, waiting, foreign].entries())
      await runs.flush([{ ...key, frames: [], steps: [{ step: 1, value: n }] }]);
    await finishTestRun(runs, first.key);
    expect(await runs.steps({ ...first.session, turn: 1 })).toEqual([]);
    expect(await runs.steps({ ...first.session, turn: 2 })).toEqual([1]);
    expect(await runs.steps({ ...session, turn: 1 })).toEqual([2]);
  });

  it.each(['first', 'last'])(
    'RunStore.finish ends the run that was started %s in its own session, beside one of another user with the same id',
    async (order) => {
      const { runs, sessions } = test.store;
      const first = await startTestRun(test.store);
      const last = await startTestRun(test.store, { runId: first.run.runId });
      const [ending, other] = order === 'first' ? [first, last] : [last, first];
      const before = await sessions.find(other.session);
      now += 1;
      expect((await finishTestRun(runs, ending.key))?.message).toMatchObject(ending.session);
      expect(await sessions.find(ending.session)).toMatchObject({ lastUpdatedAt: now });
      expect(await sessions.find(other.session)).toEqual(before);
      expect(await runs.find(other.key)).toMatchObject({ status: 'running' });
    },
  );

  it('RunStore.finish changes its own session, and promotes the next run of this one', async () => {
    const { runs, sessions } = test.store;
    const { first, second, waiting } = await startTurns();
    const before = await sessions.find(first.session);
    now += 1;
    const ended = await finishTestRun(runs, second.key);
    expect(ended?.next).toMatchObject({ runId: waiting.run.runId, status: 'running' });
    expect(await sessions.find(second.session)).toMatchObject({ lastUpdatedAt: now });
    expect(await sessions.find(first.session)).toEqual(before);
    expect(await runs.find(first.key)).toMatchObject({ status: 'running' });
  });

  it('RunStore.finish does not touch the session of a run that has ended', async () => {
    const { runs, sessions } = test.store;
    const { key, session } = await startTestRun(test.store);
    await finishTestRun(runs, key);
    const before = await sessions.find(session);
    now += 1;
    expect(await finishTestRun(runs, key)).toBeUndefined();
    expect(await runs.cancel(key, 'aborted')).toEqual({});
    expect(await sessions.find(session)).toEqual(before);
  });

  it('RunStore starts, withdraws and ends turns beside those of another user in a session with the same id', async () => {
    const { runs } = test.store;
    const victim = await startTestRun(test.store);
    for (const _ of [2, 3]) await startTestRun(test.store, victim.session);
    const session = await copySession(test.store, newOwner(), victim.session);
    const idempotency = { key: 'k', bodyHash: 'h', expiresAt: now + 60_000 };
    const { key } = await startTestRun(test.store, { ...session, idempotency });
    const report = { error: { code: 'host_stopping', message: 'The host stops' } };
    await finishTestRun(runs, key, { status: 'interrupted', report });
    const again = await runs.start(createRunRequest({ ...session, idempotency }));
    expect(again).toMatchObject({ state: 'started', run: { turn: 1, attempt: 2 } });
    const waiting = await startTestRun(test.store, session);
    const withdrawn = await startTestRun(test.store, session);
    expect(await runs.withdraw(withdrawn.key)).toMatchObject({ run: { turn: 3 } });
    expect(await allMessages(test.store, victim.session)).toHaveLength(3);
    if (again.state !== 'started') throw new Error();
    const ended = await finishTestRun(runs, { owner: session.owner, runId: again.run.runId });
    expect(ended?.next?.runId).toBe(waiting.run.runId);
    expect(await runs.find(victim.key)).toMatchObject({ status: 'running' });
    const { turns } = await test.store.turns.list({ owner: session.owner, limit: 10 });
    expect(turns.find(({ latest }) => latest.runId === again.run.runId)?.first.runId).toBe(
      key.runId,
    );
  });
});
