import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import { finishTestRun, startTestRun } from '../../test/support/test-runs.js';
import { activity as activityTable } from './schema/activity.js';

describe.each(engines)('ActivityStore.list on %s', (engine) => {
  const test = useStore(engine);

  /** A turn in a new session of the user that called tools. */
  async function callTools(owner: string, ids: readonly string[]): Promise<string> {
    const { sessions, runs } = test.store;
    const { sessionId } = await sessions.create({ owner, oracleDid: 'did:key:zOracle' });
    const { key } = await startTestRun(test.store, { owner, sessionId });
    const activity = ids.map(
      (id) => ({ owner, id, kind: 'tool_call', sessionId, createdAt: 0 }) as const,
    );
    await finishTestRun(runs, key, { activity });
    return sessionId;
  }

  it('ActivityStore.list returns the newest entries of the user, and older ones before an entry', async () => {
    const { activity } = test.store;
    const owner = newOwner();
    const first = await callTools(owner, ['1', '3', '5']);
    const second = await callTools(owner, ['2', '4']);
    await callTools(newOwner(), ['6']);
    const list = async (query: { limit: number; before?: string; sessionId?: string }) =>
      (await activity.list({ owner, ...query })).map(({ id }) => id).join(' ');
    expect(await list({ limit: 10 })).toBe('5 4 3 2 1');
    expect(await list({ limit: 2 })).toBe('5 4');
    expect(await list({ limit: 2, before: '4' })).toBe('3 2');
    expect(await list({ limit: 10, sessionId: first })).toBe('5 3 1');
    expect(await list({ limit: 1, before: '4', sessionId: second })).toBe('2');
  });

  it('ActivityStore.list returns an entry only once that was stored twice', async () => {
    const { activity } = test.store;
    const owner = newOwner();
    const sessionId = await callTools(owner, ['1', '1']);
    expect(await activity.list({ owner, limit: 10 })).toEqual([
      { id: '1', kind: 'tool_call', at: '1970-01-01T00:00:00.000Z', sessionId },
    ]);
  });
});

describe('what ActivityStore.list returns of an entry', () => {
  const test = useStore('sqlite');

  it('each value that was stored, and none that is unknown', async () => {
    const { runs, activity } = test.store;
    const { key, session } = await startTestRun(test.store);
    const { owner } = key;
    const entry = { owner, createdAt: Date.UTC(2026, 0, 2) };
    const full = {
      sessionId: session.sessionId,
      runId: key.runId,
      approvalId: 'a',
      toolCallId: 'c',
      tool: 'pay',
      outcome: 'approved',
      decidedBy: 'signature',
    } as const;
    await finishTestRun(runs, key, {
      activity: [
        { ...entry, id: '1', kind: 'approval_decided', ...full },
        { ...entry, id: '2', kind: 'rules_changed' },
      ],
    });
    const at = '2026-01-02T00:00:00.000Z';
    expect(await activity.list({ owner, limit: 10 })).toEqual([
      { id: '2', kind: 'rules_changed', at },
      {
        ...{ id: '1', kind: 'approval_decided', at, sessionId: session.sessionId },
        ...{ runId: key.runId, approvalId: 'a', toolCallId: 'c', tool: 'pay' },
        ...{ outcome: 'approved', decidedBy: 'signature' },
      },
    ]);
  });

  it('a row has null for what is not given', () => {
    const row = { owner: 'o', id: '1', kind: 'tool_call' } as const;
    const unknown = { session_id: null, run_id: null, approval_id: null, call_id: null };
    expect(activityTable.toRow({ ...row, tool: 'pay', createdAt: 1 })).toEqual({
      ...{ ...row, ...unknown, tool: 'pay', outcome: null, decided_by: null, created_at: 1 },
    });
  });
});
