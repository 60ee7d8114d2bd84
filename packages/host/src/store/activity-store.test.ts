import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import { finishTestRun, startTestRun } from '../../test/support/test-runs.js';
import { toActivityRow } from './activity-store.js';

describe.each(engines)('ActivityStore.list on %s', (engine) => {
  const test = useStore(engine);

  /** A turn in a new session of the user that called tools. */
  async function callTools(owner: string, ids: readonly string[]): Promise<string> {
    const { sessions, runs } = test.store;
    const { id: sessionId } = await sessions.create({ owner, oracleDid: 'did:key:zOracle' });
    const { key } = await startTestRun(test.store, { owner, sessionId });
    const activity = ids.map((id) =>
      toActivityRow({ owner, id, kind: 'tool_call', session_id: sessionId, created_at: 0 }),
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
