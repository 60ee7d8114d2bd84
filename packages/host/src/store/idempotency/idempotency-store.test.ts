import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../../test/support/test-database.js';

describe.each(engines)('idempotency keys on %s', (engine) => {
  let now = 1_000;
  const test = useStore(engine, { clock: () => now });

  function claimOf(owner: string, key = 'key') {
    return { owner, key, bodyHash: 'hash', expiresAt: now + 100 };
  }

  it('is new for exactly one of 50 at once, across processes', async () => {
    const second = await test.another();
    const claim = claimOf(newOwner());
    const results = await Promise.all(
      Array.from({ length: 50 }, (_, i) =>
        (i % 2 === 0 ? test.store : second).idempotency.begin(claim),
      ),
    );
    expect(results.filter(({ state }) => state === 'new')).toHaveLength(1);
    expect(results.filter(({ state }) => state === 'existing')).toHaveLength(49);
  });

  it('tells a repetition the first outcome', async () => {
    const { idempotency } = test.store;
    const claim = claimOf(newOwner());
    await idempotency.begin(claim);
    expect(await idempotency.begin(claim)).toEqual({ state: 'existing', first: {} });
    await idempotency.complete({ ...claim, status: 200, response: { ok: [1] } });
    const first = { status: 200, response: { ok: [1] } };
    expect(await idempotency.begin(claim)).toEqual({ state: 'existing', first });
  });

  it('notices another body', async () => {
    const claim = claimOf(newOwner());
    await test.store.idempotency.begin(claim);
    const other = { ...claim, bodyHash: 'other' };
    expect(await test.store.idempotency.begin(other)).toEqual({ state: 'conflict' });
  });

  it('keeps users apart', async () => {
    const { idempotency } = test.store;
    const mine = claimOf(newOwner());
    const theirs = claimOf(newOwner());
    await idempotency.begin(mine);
    expect(await idempotency.begin(theirs)).toEqual({ state: 'new' });
    await idempotency.release(theirs);
    await idempotency.complete({ ...theirs, runId: 'foreign' });
    expect(await idempotency.begin(mine)).toEqual({ state: 'existing', first: {} });
  });

  it('is free again once released or expired', async () => {
    const { idempotency } = test.store;
    const claim = claimOf(newOwner());
    await idempotency.begin(claim);
    await idempotency.release(claim);
    expect(await idempotency.begin(claim)).toEqual({ state: 'new' });
    await idempotency.complete({ ...claim, runId: 'old' });
    now += 100;
    const again = { ...claim, bodyHash: 'other', expiresAt: now + 100 };
    expect(await idempotency.begin(again)).toEqual({ state: 'new' });
    expect(await idempotency.begin(again)).toEqual({ state: 'existing', first: {} });
  });

  it('forgets only what has expired', async () => {
    const { idempotency } = test.store;
    const short = claimOf(newOwner());
    const long = { ...claimOf(newOwner()), expiresAt: now + 1_000 };
    await idempotency.begin(short);
    await idempotency.begin(long);
    now += 200;
    expect(await idempotency.prune()).toBeGreaterThanOrEqual(1);
    expect(await idempotency.begin(long)).toEqual({ state: 'existing', first: {} });
  });
});
