import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import { ACCESS_KEYS_PER_OWNER } from './access-key-store.js';

const audience = 'did:key:zOracle';
const capabilities = [{ can: 'oracle/call', with: audience }];
const DAY_MS = 86_400_000;

describe.each(engines)('AccessKeyStore on %s', (engine) => {
  let now = Date.UTC(2026, 0, 1, 12);
  const test = useStore(engine, { clock: () => now });

  const createDelegation = (owner: string, cid: string, lifeSeconds = 1_000_000) => {
    const expiresAt = Math.floor(now / 1000) + lifeSeconds;
    return { owner, cid, audience, capabilities, expiresAt };
  };
  const createKey = (owner: string, cid: string, lifeSeconds?: number) => ({
    ...createDelegation(owner, cid, lifeSeconds),
    name: `Key ${cid}`,
    caveats: {},
  });
  /** Stores a delegation for services. */
  const putService = (owner: string, cid: string, lifeSeconds?: number) =>
    test.store.delegations.put({ ...createDelegation(owner, cid, lifeSeconds), raw: 'token' });

  /** Registers keys, and records a delegation with another purpose that has the CID of the first. */
  async function registerKeys(...cids: string[]) {
    const owner = newOwner();
    for (const cid of cids) await test.store.accessKeys.register(createKey(owner, cid));
    await putService(owner, cids[0] ?? '');
    return owner;
  }

  const listCids = async (owner: string) =>
    (await test.store.accessKeys.list(owner)).map(({ cid }) => cid);

  const listServices = async (owner: string) =>
    (await test.store.delegations.list(owner)).filter(({ purpose }) => purpose === 'services');

  it('AccessKeyStore.list returns the keys of one user, but no other delegations', async () => {
    const owner = await registerKeys('a', 'b');
    await registerKeys('a', 'c');
    expect(await test.store.accessKeys.list(owner)).toEqual([
      expect.objectContaining({ owner, cid: 'a', name: 'Key a', turnsToday: 0 }),
      expect.objectContaining({ owner, cid: 'b', name: 'Key b', turnsToday: 0 }),
    ]);
  });

  it('AccessKeyStore.register accepts no more keys than the limit, but still renames one', async () => {
    const { accessKeys } = test.store;
    const owner = await registerKeys('a');
    for (let i = 1; i < ACCESS_KEYS_PER_OWNER; i += 1)
      expect(await accessKeys.register(createKey(owner, `b${i}`))).toBeDefined();
    expect(await accessKeys.register(createKey(owner, 'c'))).toBeUndefined();
    const renamed = await accessKeys.register({ ...createKey(owner, 'a'), name: 'Renamed' });
    expect(renamed).toMatchObject({ cid: 'a', name: 'Renamed' });
    expect(await listCids(owner)).toHaveLength(ACCESS_KEYS_PER_OWNER);
    expect(await accessKeys.register(createKey(newOwner(), 'c'))).toBeDefined();
  });

  it('AccessKeyStore.register deletes expired keys, but no other expired delegations', async () => {
    const { accessKeys } = test.store;
    const owner = await registerKeys('a');
    await putService(owner, 'service', 10);
    await accessKeys.register(createKey(owner, 'expires', 10));
    now += 9_999;
    await accessKeys.register(createKey(owner, 'b'));
    expect([...(await listCids(owner))].sort()).toEqual(['a', 'b', 'expires']);
    now += 1;
    await accessKeys.register(createKey(owner, 'c'));
    expect([...(await listCids(owner))].sort()).toEqual(['a', 'b', 'c']);
    expect((await listServices(owner)).map(({ cid }) => cid)).toContain('service');
  });

  it('AccessKeyStore.use records the use of one registered key, at most once a minute', async () => {
    const { accessKeys } = test.store;
    const owner = await registerKeys('a', 'b');
    await putService(owner, 'service');
    const first = now;
    expect(await accessKeys.use({ owner, cid: 'a' })).toBe(true);
    now += 59_999;
    expect(await accessKeys.use({ owner, cid: 'a' })).toBe(true);
    const lastUses = async () =>
      (await accessKeys.list(owner)).map(({ cid, lastUsedAt }) => [cid, lastUsedAt]);
    expect(await lastUses()).toEqual([
      ['a', first],
      ['b', undefined],
    ]);
    now += 1;
    await accessKeys.use({ owner, cid: 'a' });
    expect(await lastUses()).toContainEqual(['a', now]);
    for (const { lastUsedAt } of await listServices(owner)) expect(lastUsedAt).toBeUndefined();
    for (const key of [
      { owner, cid: 'service' },
      { owner, cid: 'unknown' },
      { owner: newOwner(), cid: 'a' },
    ])
      expect(await accessKeys.use(key)).toBe(false);
  });

  it('AccessKeyStore.takeTurn counts the turns of each key and day', async () => {
    const { accessKeys } = test.store;
    const owner = await registerKeys('a', 'b');
    const a = { owner, cid: 'a' };
    const turns = async () => (await accessKeys.list(owner)).map(({ turnsToday }) => turnsToday);
    expect(await accessKeys.takeTurn(a, 2)).toBe(true);
    expect(await accessKeys.takeTurn(a, 2)).toBe(true);
    expect(await accessKeys.takeTurn(a, 2)).toBe(false);
    expect(await turns()).toEqual([2, 0]);
    expect(await accessKeys.takeTurn({ owner, cid: 'b' }, 2)).toBe(true);
    expect(await turns()).toEqual([2, 1]);
    expect(await accessKeys.takeTurn({ owner, cid: 'unknown' }, 2)).toBe(false);
    expect(await accessKeys.takeTurn({ owner: newOwner(), cid: 'a' }, 2)).toBe(false);
    now += DAY_MS;
    expect(await turns()).toEqual([0, 0]);
    expect(await accessKeys.takeTurn(a, 2)).toBe(true);
    expect(await turns()).toEqual([1, 0]);
  });

  it('AccessKeyStore.returnTurn gives back a turn of today', async () => {
    const { accessKeys } = test.store;
    const owner = await registerKeys('a', 'b');
    const [a, b] = [
      { owner, cid: 'a' },
      { owner, cid: 'b' },
    ];
    for (const key of [a, a, b]) await accessKeys.takeTurn(key, 5);
    await accessKeys.returnTurn(a);
    const turns = async () => (await accessKeys.list(owner)).map(({ turnsToday }) => turnsToday);
    expect(await turns()).toEqual([1, 1]);
    for (let i = 0; i < 3; i += 1) await accessKeys.returnTurn(a);
    expect(await turns()).toEqual([0, 1]);
    await accessKeys.takeTurn(a, 5);
    const today = now;
    now += DAY_MS;
    await accessKeys.returnTurn(a);
    now = today;
    expect(await turns()).toEqual([1, 1]);
  });

  it('AccessKeyStore.revoke removes one key and leaves the others', async () => {
    const { accessKeys, revocations } = test.store;
    const [a, b] = [`a-${newOwner()}`, `b-${newOwner()}`];
    const owner = await registerKeys(a, b);
    expect(await accessKeys.revoke({ owner: newOwner(), cid: a })).toBe(false);
    expect(await accessKeys.revoke({ owner, cid: a })).toBe(true);
    expect(await accessKeys.revoke({ owner, cid: a })).toBe(false);
    expect(await listCids(owner)).toEqual([b]);
    expect(await revocations.has(a)).toBe(true);
    expect(await revocations.has(b)).toBe(false);
  });

  it('AccessKeyStore.revoke does not find other delegations', async () => {
    const { accessKeys } = test.store;
    const owner = newOwner();
    const cid = `service-${owner}`;
    await putService(owner, cid);
    expect(await accessKeys.revoke({ owner, cid })).toBe(false);
    expect(await accessKeys.takeTurn({ owner, cid }, 1)).toBe(false);
    expect(await listServices(owner)).toHaveLength(1);
  });
});
