import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../../test/support/test-database.js';

describe.each(engines)('revocations on %s', (engine) => {
  let now = 1_000_000;
  const test = useStore(engine, { clock: () => now });

  it('remembers each until it expires, in every process', async () => {
    const { revocations } = test.store;
    const owner = newOwner();
    await revocations.add({ owner, cid: 'short', expiresAt: now / 1000 + 10 });
    await revocations.add({ owner, cid: 'long', expiresAt: now / 1000 + 1_000 });
    await revocations.add({ owner, cid: 'endless', expiresAt: null });
    const second = await test.another();
    for (const cid of ['short', 'long', 'endless'])
      expect(await second.revocations.has(cid)).toBe(true);
    now += 10_999;
    expect(await revocations.has('short')).toBe(true);
    expect(await revocations.prune()).toBe(1);
    expect(await second.revocations.has('short')).toBe(false);
    for (const cid of ['long', 'endless']) expect(await second.revocations.has(cid)).toBe(true);
  });

  it('says the same when revoked twice', async () => {
    const { revocations } = test.store;
    const owner = newOwner();
    const revocation = { owner, cid: 'twice', expiresAt: 10_000 };
    await Promise.all([revocations.add(revocation), revocations.add(revocation)]);
    expect(await revocations.has('twice')).toBe(true);
  });
});
