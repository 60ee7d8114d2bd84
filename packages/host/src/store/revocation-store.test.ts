import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';

describe.each(engines)('RevocationStore on %s', (engine) => {
  let now = 1_000_000;
  // Revocations apply to the tokens of all users.
  const test = useStore(engine, { clock: () => now, hasTwins: false });

  it('keeps each revocation until an hour after it expires, in every process', async () => {
    const { revocations } = test.store;
    const owner = newOwner();
    await revocations.add({ owner, cid: 'short', expiresAt: now / 1000 + 10 });
    await revocations.add({ owner, cid: 'long', expiresAt: now / 1000 + 10_000 });
    await revocations.add({ owner, cid: 'endless', expiresAt: null });
    const second = await test.another();
    for (const cid of ['short', 'long', 'endless'])
      expect(await second.revocations.has(cid)).toBe(true);
    now += 10_999;
    // A host whose clock is late would accept the token.
    expect(await revocations.prune()).toBe(0);
    expect(await revocations.has('short')).toBe(true);
    now += 3_600_000;
    expect(await revocations.prune()).toBe(1);
    expect(await second.revocations.has('short')).toBe(false);
    for (const cid of ['long', 'endless']) expect(await second.revocations.has(cid)).toBe(true);
  });

  it('accepts a second revocation', async () => {
    const { revocations } = test.store;
    const owner = newOwner();
    const revocation = { owner, cid: 'twice', expiresAt: 10_000 };
    await Promise.all([revocations.add(revocation), revocations.add(revocation)]);
    expect(await revocations.has('twice')).toBe(true);
  });
});

describe.each(engines)('RevocationStore for all users on %s', (engine) => {
  const now = 1_000_000;
  const test = useStore(engine, { clock: () => now, hasTwins: false });
  const expiresIn = (seconds: number) => now / 1000 + seconds;

  it('RevocationStore.filterRevoked returns the given ones that are revoked', async () => {
    const { revocations } = test.store;
    for (const cid of ['first', 'second', 'third'])
      await revocations.add({ owner: newOwner(), cid, expiresAt: expiresIn(10_000) });
    const revoked = await revocations.filterRevoked(['first', 'third', 'valid']);
    expect([...revoked].sort()).toEqual(['first', 'third']);
    expect(await revocations.filterRevoked([])).toEqual([]);
  });

  it('RevocationStore.listExpiring returns those of the owners that expire in this time, within the limit', async () => {
    const { revocations } = test.store;
    const lives = { expired: 0, soon: 1, last: 60, late: 61 };
    const owners = [newOwner(), newOwner()];
    for (const [i, [cid, seconds]] of Object.entries(lives).entries())
      await revocations.add({ owner: String(owners[i % 2]), cid, expiresAt: expiresIn(seconds) });
    await revocations.add({ owner: String(owners[0]), cid: 'endless', expiresAt: null });
    await revocations.add({ owner: newOwner(), cid: 'of another', expiresAt: expiresIn(60) });
    const list = async (limit: number, ...of: string[]) => {
      const found = await revocations.listExpiring({ owners: of, withinSeconds: 60, limit });
      return [...found].sort((a, b) => a.expiresAt - b.expiresAt);
    };
    expect(await list(10, ...owners)).toEqual([
      { cid: 'soon', expiresAt: expiresIn(1) },
      { cid: 'last', expiresAt: expiresIn(60) },
    ]);
    expect(await list(1, ...owners)).toHaveLength(1);
    expect(await list(10)).toEqual([]);
  });
});

describe.each(engines)('SingleUseStore on %s', (engine) => {
  const test = useStore(engine);

  it('accepts exactly one of 50 concurrent claims, across processes', async () => {
    const second = await test.another();
    const owner = newOwner();
    const claims = await Promise.all(
      Array.from({ length: 50 }, (_, i) =>
        (i % 2 === 0 ? test.store : second).singleUse.of(owner).claim('bafyrace', 100),
      ),
    );
    expect(claims.filter((claimed) => claimed)).toHaveLength(1);
  });

  it('allows another claim after the first claimant released the token', async () => {
    const mine = test.store.singleUse.of(newOwner());
    const theirs = test.store.singleUse.of(newOwner());
    expect(await mine.claim('bafyreleased', 100)).toBe(true);
    await theirs.release('bafyreleased');
    expect(await theirs.claim('bafyreleased', 100)).toBe(false);
    await mine.release('bafyreleased');
    expect(await theirs.claim('bafyreleased', 100)).toBe(true);
  });

  it('SingleUseStore.release releases one token and leaves the others', async () => {
    const claims = test.store.singleUse.of(newOwner());
    for (const cid of ['bafymine', 'bafyalsomine']) await claims.claim(cid, 100);
    await claims.release('bafymine');
    expect(await test.store.singleUse.has('bafymine')).toBe(false);
    expect(await test.store.singleUse.has('bafyalsomine')).toBe(true);
  });

  it('SingleUseStore.has finds a claim of any owner, in every process, until it is released', async () => {
    const second = await test.another();
    const claims = test.store.singleUse.of(newOwner());
    expect(await second.singleUse.has('bafyhas')).toBe(false);
    await claims.claim('bafyhas', 100);
    expect(await second.singleUse.has('bafyhas')).toBe(true);
    await claims.release('bafyhas');
    expect(await second.singleUse.has('bafyhas')).toBe(false);
  });

  it('SingleUseStore.prune deletes only expired claims', async () => {
    const claims = test.store.singleUse.of(newOwner());
    await claims.claim('bafyold', 10);
    await claims.claim('bafyyoung', 30);
    expect(await test.store.singleUse.prune(20)).toBe(1);
    expect(await claims.claim('bafyold', 40)).toBe(true);
    expect(await claims.claim('bafyyoung', 40)).toBe(false);
  });
});
