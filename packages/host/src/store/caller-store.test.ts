import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';

describe.each(engines)('CallerStore on %s', (engine) => {
  const test = useStore(engine);
  const createInvitation = () => ({ cid: `bafy-${newOwner()}`, expiration: 10_000_000_000 });

  /** Users who have redeemed an invitation. */
  async function inviteCallers(count: number): Promise<string[]> {
    const dids = Array.from({ length: count }, () => newOwner());
    for (const did of dids)
      expect(await test.store.callers.redeem(did, createInvitation())).toBe('redeemed');
    return dids;
  }

  it('CallerStore.has and filterStored find the users who redeemed an invitation', async () => {
    const { callers } = test.store;
    const [first = '', second = '', third = ''] = await inviteCallers(3);
    const stranger = newOwner();
    expect(await callers.has(first)).toBe(true);
    expect(await callers.has(stranger)).toBe(false);
    const stored = await callers.filterStored([first, third, stranger]);
    expect([...stored].sort()).toEqual([first, third].sort());
    expect(await callers.filterStored([])).toEqual([]);
    expect((await callers.list()).map(({ did }) => did)).toContain(second);
  });

  it('CallerStore.redeem accepts an invitation once, and does not use it for a stored caller', async () => {
    const { callers } = test.store;
    const [did = ''] = await inviteCallers(1);
    const invitation = createInvitation();
    expect(await callers.redeem(did, invitation)).toBe('already-stored');
    const [next, late] = [newOwner(), newOwner()];
    expect(await callers.redeem(next, invitation)).toBe('redeemed');
    expect(await callers.redeem(late, invitation)).toBe('used');
    expect(await callers.has(late)).toBe(false);
  });

  it('CallerStore.redeem stores one of many callers who redeem an invitation at once', async () => {
    const stores = [test.store.callers, (await test.another()).callers];
    const earlier = await inviteCallers(2);
    const invitation = createInvitation();
    const dids = Array.from({ length: 20 }, () => newOwner());
    const results = await Promise.all(dids.map((did, i) => stores[i % 2]?.redeem(did, invitation)));
    expect(results.filter((result) => result === 'redeemed')).toHaveLength(1);
    expect(results.filter((result) => result === 'used')).toHaveLength(19);
    expect(await test.store.callers.filterStored(dids)).toEqual([
      dids[results.indexOf('redeemed')],
    ]);
    expect(await test.store.callers.filterStored(earlier)).toHaveLength(2);
  });

  it('CallerStore.remove removes one caller and leaves the others', async () => {
    const { callers } = test.store;
    const [first = '', second = ''] = await inviteCallers(2);
    expect(await callers.remove(newOwner())).toBe(false);
    expect(await callers.remove(first)).toBe(true);
    expect(await callers.remove(first)).toBe(false);
    expect(await callers.has(first)).toBe(false);
    expect(await callers.has(second)).toBe(true);
  });
});

describe('what CallerStore stores', () => {
  let now = 1_000_000;
  const test = useStore('sqlite', { clock: () => now });
  const invitation = (cid: string) => ({ cid, expiration: 2_000 });

  it('list returns all callers with their invitations, newest first, then by their DID', async () => {
    const { callers } = test.store;
    await callers.redeem('did:key:zM', invitation('m'));
    now += 1;
    for (const name of ['C', 'A', 'B']) await callers.redeem(`did:key:z${name}`, invitation(name));
    expect(await callers.list()).toEqual([
      { did: 'did:key:zA', cid: 'A', createdAt: 1_000_001 },
      { did: 'did:key:zB', cid: 'B', createdAt: 1_000_001 },
      { did: 'did:key:zC', cid: 'C', createdAt: 1_000_001 },
      { did: 'did:key:zM', cid: 'm', createdAt: 1_000_000 },
    ]);
  });

  it('a used invitation stays used after its caller was removed, until a minute after its expiry', async () => {
    const { callers, singleUse } = test.store;
    const did = newOwner();
    await callers.redeem(did, invitation('used'));
    const stored = newOwner();
    await callers.redeem(stored, invitation('other'));
    expect(await callers.redeem(stored, invitation('used'))).toBe('used');
    expect(await callers.remove(did)).toBe(true);
    expect(await callers.redeem(did, invitation('used'))).toBe('used');
    await test.forAllUsers(() => singleUse.prune(2_060));
    expect(await callers.redeem(did, invitation('used'))).toBe('used');
    await test.forAllUsers(() => singleUse.prune(2_061));
    expect(await callers.redeem(did, invitation('used'))).toBe('redeemed');
  });

  it('redeem stores no caller whose invitation another one uses meanwhile, and leaves the others', async () => {
    const { callers } = test.store;
    const earlier = newOwner();
    await callers.redeem(earlier, invitation('earlier'));
    const handle = new DatabaseSync(join(test.options.dataDir, 'sibyl.db'), { timeout: 5_000 });
    // SQLite has one writer at a time, so the other use happens inside the write.
    handle.exec(`create trigger use_meanwhile after insert on callers when new.cid = 'contested'
      begin insert into single_use (cid, owner, expires_at) values (new.cid, 'did:key:zFaster', 3000); end`);
    handle.close();
    const late = newOwner();
    expect(await callers.redeem(late, invitation('contested'))).toBe('used');
    expect(await callers.filterStored([earlier, late])).toEqual([earlier]);
  });
});
