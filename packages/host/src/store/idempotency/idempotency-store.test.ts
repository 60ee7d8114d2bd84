import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../../test/support/test-database.js';

describe.each(engines)('idempotency keys on %s', (engine) => {
  let now = 1_000;
  const test = useStore(engine, { clock: () => now });

  async function requestOf(owner: string, bodyHash = 'hash') {
    const { id: sessionId } = await test.store.sessions.create({ owner, oracleDid: 'did:o' });
    const idempotency = { key: 'key', bodyHash, expiresAt: now + 100 };
    const message = { content: 'hi' };
    return { owner, sessionId, requestId: 'r', status: 'running', message, idempotency } as const;
  }

  it('is new for exactly one of 50 at once, across processes', async () => {
    const second = await test.another();
    const request = await requestOf(newOwner());
    const results = await Promise.all(
      Array.from({ length: 50 }, (_, i) => (i % 2 === 0 ? test.store : second).runs.start(request)),
    );
    const started = results.filter((result) => result.state === 'started');
    expect(started).toHaveLength(1);
    const runId = started[0]?.run.id;
    expect(results.filter(({ state }) => state === 'existing')).toEqual(
      Array(49).fill({ state: 'existing', runId }),
    );
    const { owner } = request;
    const key = 'key';
    expect(await second.idempotency.find({ owner, key })).toEqual({ bodyHash: 'hash', runId });
  });

  it('notices another body', async () => {
    const owner = newOwner();
    await test.store.runs.start(await requestOf(owner));
    const other = await requestOf(owner, 'other');
    expect(await test.store.runs.start(other)).toEqual({ state: 'conflict' });
  });

  it('keeps users apart', async () => {
    const [mine, theirs] = [newOwner(), newOwner()];
    await test.store.runs.start(await requestOf(mine));
    expect(await test.store.idempotency.find({ owner: theirs, key: 'key' })).toBeUndefined();
    expect(await test.store.runs.start(await requestOf(theirs))).toMatchObject({
      state: 'started',
    });
  });

  it('is free again once expired, and forgets only what has expired', async () => {
    const { runs, idempotency } = test.store;
    const owner = newOwner();
    await runs.start(await requestOf(owner));
    now += 100;
    expect(await idempotency.find({ owner, key: 'key' })).toBeUndefined();
    expect(await runs.start(await requestOf(owner, 'other'))).toMatchObject({ state: 'started' });
    expect(await idempotency.prune()).toBeGreaterThanOrEqual(1);
    expect(await idempotency.find({ owner, key: 'key' })).toMatchObject({ bodyHash: 'other' });
  });
});
