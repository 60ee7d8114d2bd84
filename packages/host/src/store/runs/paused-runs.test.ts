import { describe, expect, it } from 'vitest';
import { engines, useStore } from '../../../test/support/test-database.js';
import { startTestRun } from '../../../test/support/test-runs.js';
import type { RunKey } from '../schema/runs.js';
import type { RunStore } from './run-store.js';

const pauseTestRun = (runs: RunStore, key: RunKey, limit = 10) =>
  runs.pause({
    ...key,
    interrupts: [],
    steps: [],
    request: {},
    limit,
    end: { message: { content: '', isComplete: false } },
  });

describe.each(engines)('paused runs on %s', (engine) => {
  const test = useStore(engine);

  it('RunStore.pause does not pause a run that another message interrupts, which would wait for it', async () => {
    const { runs } = test.store;
    const { key, session } = await startTestRun(test.store);
    const next = await startTestRun(test.store, { ...session, multitask: 'interrupt' });
    expect(next.run.status).toBe('queued');
    expect(await pauseTestRun(runs, key)).toEqual({ state: 'canceled', reason: 'interrupted' });
    expect(await runs.find(key)).toMatchObject({ status: 'running' });
  });

  it('RunStore.pause does not pause a run that the user has aborted', async () => {
    const { runs } = test.store;
    const { key } = await startTestRun(test.store);
    await runs.cancel(key, 'aborted');
    expect(await pauseTestRun(runs, key)).toEqual({ state: 'canceled', reason: 'aborted' });
  });

  it('RunStore.pause of a run that is paused already, because the reply was lost, does not exceed the limit', async () => {
    const { runs } = test.store;
    const { key } = await startTestRun(test.store);
    expect(await pauseTestRun(runs, key, 1)).toMatchObject({ state: 'paused' });
    expect(await pauseTestRun(runs, key, 1)).toEqual({ state: 'lost' });
    const { owner } = key;
    const { sessionId } = await test.store.sessions.create({ owner, oracleDid: 'did:key:z' });
    const other = await startTestRun(test.store, { owner, sessionId });
    expect(await pauseTestRun(runs, other.key, 1)).toEqual({ state: 'too-many' });
  });

  it('RunStore.start promotes the run that waits for the paused one that it cancels', async () => {
    const { runs } = test.store;
    const { key, session } = await startTestRun(test.store);
    expect(await pauseTestRun(runs, key)).toMatchObject({ state: 'paused' });
    const waiting = await startTestRun(test.store, { ...session, waitsForPaused: true });
    const last = await startTestRun(test.store, session);
    expect(await runs.find(key)).toMatchObject({ status: 'interrupted' });
    expect(await runs.find(waiting.key)).toMatchObject({ status: 'running' });
    expect(await runs.find(last.key)).toMatchObject({ status: 'queued' });
  });

  it('RunStore.start runs at once if it also interrupts the run that waits for the paused one', async () => {
    const { runs } = test.store;
    const { key, session } = await startTestRun(test.store);
    await pauseTestRun(runs, key);
    const waiting = await startTestRun(test.store, { ...session, waitsForPaused: true });
    const last = await startTestRun(test.store, { ...session, multitask: 'interrupt' });
    expect(await runs.find(waiting.key)).toMatchObject({ cancelReason: 'interrupted' });
    expect(await runs.find(last.key)).toMatchObject({ status: 'running' });
    // Also while the canceled one still waits for its host.
    expect(await runs.current(session)).toMatchObject({ runId: last.run.runId });
  });

  it('RunStore.cancel ends a paused run and promotes the next one', async () => {
    const { runs } = test.store;
    const { key, session } = await startTestRun(test.store);
    await pauseTestRun(runs, key);
    const waiting = await startTestRun(test.store, { ...session, waitsForPaused: true });
    expect(await runs.cancel(key, 'aborted')).toMatchObject({
      run: { status: 'aborted' },
      next: { runId: waiting.run.runId, status: 'running' },
    });
    expect(await runs.cancel(key, 'aborted')).toEqual({});
  });
});
