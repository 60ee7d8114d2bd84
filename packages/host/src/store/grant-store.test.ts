import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import type { GrantPurpose } from './grant-store.js';

const LIMIT = 200;

describe.each(engines)('GrantStore on %s', (engine) => {
  let now = 1_700_000_000_000;
  const test = useStore(engine, { clock: () => now });

  function createGrant(
    owner: string,
    cid: string,
    { purpose = 'schedule' as GrantPurpose, lifeSeconds = 1_000_000 } = {},
  ) {
    return {
      owner,
      purpose,
      cid,
      audience: 'did:key:zOracle',
      capabilities: [{ can: 'oracle/call', with: 'did:key:zOracle' }],
      expiresAt: Math.floor(now / 1000) + lifeSeconds,
      raw: `${purpose} token of ${cid}`,
    };
  }

  const listCids = async (owner: string, purpose: GrantPurpose = 'schedule') =>
    (await test.store.grants.list({ owner, purpose })).map(({ cid }) => cid);

  it('GrantStore.get and list return the tokens of one user and purpose', async () => {
    const { grants } = test.store;
    const [owner, other] = [newOwner(), newOwner()];
    await grants.put(createGrant(owner, 'a', { purpose: 'rules' }));
    for (const cid of ['a', 'b', 'c']) {
      now += 1;
      await grants.put(createGrant(owner, cid));
    }
    await grants.put(createGrant(other, 'd'));
    for (const cid of ['a', 'b', 'c'])
      expect(await grants.get({ owner, purpose: 'schedule', cid })).toEqual({
        cid,
        raw: `schedule token of ${cid}`,
      });
    expect(await grants.get({ owner, purpose: 'rules', cid: 'b' })).toBeUndefined();
    expect(await grants.get({ owner, purpose: 'schedule', cid: 'd' })).toBeUndefined();
    expect(await listCids(owner)).toEqual(['c', 'b', 'a']);
    expect(await grants.list({ owner, purpose: 'rules' })).toEqual([
      { cid: 'a', raw: 'rules token of a' },
    ]);
    expect(await listCids(other)).toEqual(['d']);
  });

  it('GrantStore.remove deletes one grant and leaves the others', async () => {
    const { grants } = test.store;
    const owner = newOwner();
    for (const cid of ['a', 'b']) await grants.put(createGrant(owner, cid));
    await grants.put(createGrant(owner, 'a', { purpose: 'rules' }));
    await grants.remove({ owner: newOwner(), purpose: 'schedule', cid: 'a' });
    expect([...(await listCids(owner))].sort()).toEqual(['a', 'b']);
    await grants.remove({ owner, purpose: 'schedule', cid: 'a' });
    expect(await listCids(owner)).toEqual(['b']);
    expect(await listCids(owner, 'rules')).toEqual(['a']);
  });

  it('GrantStore.put stores no more than the limit of one purpose, and more once some have expired', async () => {
    const { grants } = test.store;
    const [owner, other] = [newOwner(), newOwner()];
    await grants.put(createGrant(other, 'theirs', { lifeSeconds: 10 }));
    await grants.put(createGrant(owner, 'other', { purpose: 'rules', lifeSeconds: 10 }));
    await grants.put(createGrant(owner, 'short', { lifeSeconds: 10 }));
    for (let i = 1; i < LIMIT; i += 1)
      expect(await grants.put(createGrant(owner, `long${i}`))).toBe(true);
    now += 9_000;
    expect(await grants.put(createGrant(owner, 'last'))).toBe(false);
    // One that is stored already needs no room.
    expect(await grants.put(createGrant(owner, 'long1'))).toBe(true);
    expect(await grants.put(createGrant(owner, 'another', { purpose: 'rules' }))).toBe(true);
    expect(await grants.put(createGrant(newOwner(), 'last'))).toBe(true);
    now += 1_000;
    expect(await grants.put(createGrant(owner, 'last'))).toBe(true);
    const cids = await listCids(owner);
    expect(cids).toHaveLength(LIMIT);
    expect(cids).not.toContain('short');
    expect([...(await listCids(owner, 'rules'))].sort()).toEqual(['another', 'other']);
    expect(await listCids(other)).toEqual(['theirs']);
  });
});
