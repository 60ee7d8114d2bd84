import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import pg from 'pg';
import { describe, expect, it } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import {
  DELEGATIONS_PER_OWNER,
  UNUSED_PRESENTED_MS,
  USE_PRECISION_MS,
} from './delegation-store.js';

const audience = 'did:key:zOracle';
const raw = 'OqJlcm9vdHOB2CpYJQABcRIg-a-token-that-is-secret';
const capabilities = [{ can: 'store/*', with: 'did:key:zAlice' }];

function createDelegation(owner: string, cid = 'bafyfirst', lifeSeconds = 60) {
  const expiresAt = Math.floor(Date.now() / 1000) + lifeSeconds;
  return { owner, audience, cid, raw, capabilities, expiresAt };
}

describe.each(engines)('DelegationStore on %s', (engine) => {
  const test = useStore(engine);

  it('DelegationStore.put makes the newest one current and keeps the others without a token', async () => {
    const { delegations } = test.store;
    const owner = newOwner();
    const first = createDelegation(owner);
    const second = { ...createDelegation(owner, 'bafysecond'), raw: 'second' };
    await delegations.put(first);
    await delegations.put(second);
    expect(await delegations.get({ owner, audience })).toEqual({
      ok: { cid: 'bafysecond', expiresAt: second.expiresAt, raw: 'second' },
    });
    const [current, ...replaced] = await delegations.list(owner);
    expect(current?.lastUsedAt).toBeUndefined();
    expect([current, ...replaced]).toMatchObject([
      { cid: 'bafysecond', capabilities, isCurrent: true },
      { cid: 'bafyfirst', capabilities, isCurrent: false, expiresAt: first.expiresAt },
    ]);
    await delegations.put(first);
    expect(await delegations.get({ owner, audience })).toHaveProperty('ok.cid', 'bafyfirst');
    const isCurrent = (await delegations.list(owner)).map((each) => [each.cid, each.isCurrent]);
    expect(isCurrent).toEqual([
      ['bafysecond', false],
      ['bafyfirst', true],
    ]);
  });

  it('DelegationStore.put keeps one token and the limit, also when many are stored at once', async () => {
    const owner = newOwner();
    const stores = [test.store.delegations, (await test.another()).delegations];
    const count = DELEGATIONS_PER_OWNER + 10;
    await Promise.all(
      Array.from({ length: count }, (_, i) =>
        stores[i % 2]?.put(createDelegation(owner, `bafy${i}`)),
      ),
    );
    const listed = await test.store.delegations.list(owner);
    expect(listed).toHaveLength(DELEGATIONS_PER_OWNER);
    expect(listed.filter(({ isCurrent }) => isCurrent)).toHaveLength(1);
    expect(new Set(listed.map(({ createdAt }) => createdAt)).size).toBe(DELEGATIONS_PER_OWNER);
  });

  it('DelegationStore.put stores a delegation that never expires', async () => {
    const owner = newOwner();
    await test.store.delegations.put({ ...createDelegation(owner), expiresAt: null });
    expect(await test.store.delegations.get({ owner, audience })).toMatchObject({
      ok: { expiresAt: null },
    });
  });

  it('DelegationStore treats the delegation of another user as unknown', async () => {
    const { delegations } = test.store;
    const owner = newOwner();
    await delegations.put(createDelegation(owner));
    const stranger = newOwner();
    expect(await delegations.get({ owner: stranger, audience })).toEqual({ error: 'not-found' });
    expect(await delegations.list(stranger)).toEqual([]);
    expect(await delegations.revoke(stranger, 'bafyfirst')).toBe(false);
    expect(await delegations.revokeAll(stranger)).toEqual([]);
    expect(await delegations.get({ owner, audience })).toHaveProperty('ok');
  });

  it('DelegationStore.revoke deletes and revokes a delegation, and makes no other one current', async () => {
    const { delegations, revocations } = test.store;
    const owner = newOwner();
    await delegations.put(createDelegation(owner, 'bafyolder'));
    await delegations.put(createDelegation(owner, 'bafyrevoked'));
    expect(await revocations.has('bafyrevoked')).toBe(false);
    expect(await delegations.revoke(owner, 'bafyrevoked')).toBe(true);
    expect(await delegations.revoke(owner, 'bafyrevoked')).toBe(false);
    expect(await revocations.has('bafyrevoked')).toBe(true);
    expect(await revocations.has('bafyolder')).toBe(false);
    expect(await delegations.get({ owner, audience })).toEqual({ error: 'not-found' });
  });

  it('DelegationStore.revokeStored does not revoke delegations that were only presented; revokeAll does', async () => {
    const { delegations, revocations } = test.store;
    const owner = newOwner();
    const { raw: _, ...presented } = createDelegation(owner, `presented-${owner}`);
    await delegations.put(createDelegation(owner, `replaced-${owner}`));
    await delegations.put(createDelegation(owner, `current-${owner}`));
    await delegations.recordUse(presented);
    expect([...(await delegations.revokeStored(owner))].sort()).toEqual([
      `current-${owner}`,
      `replaced-${owner}`,
    ]);
    expect(await revocations.has(presented.cid)).toBe(false);
    expect(await delegations.revokeAll(owner)).toEqual([presented.cid]);
    expect(await revocations.has(presented.cid)).toBe(true);
    expect(await delegations.list(owner)).toEqual([]);
  });

  it('DelegationStore.list omits a delegation that was recorded after its revocation', async () => {
    const { delegations, revocations } = test.store;
    const owner = newOwner();
    const { raw: _, ...presented } = createDelegation(owner, `late-${owner}`);
    await revocations.add({ owner, cid: presented.cid, expiresAt: null });
    await delegations.recordUse(presented);
    expect(await delegations.list(owner)).toEqual([]);
  });

  it('DelegationStore.get returns unreadable with another key', async () => {
    const owner = newOwner();
    await test.store.delegations.put(createDelegation(owner));
    const stranger = await test.another({ secretKey: new Uint8Array(32).fill(8) });
    const result = await stranger.delegations.get({ owner, audience });
    expect(result).toMatchObject({ error: 'unreadable', reason: expect.stringContaining('key') });
  });

  it('DelegationStore.get does not decrypt a row that was moved to another user', async () => {
    const victim = newOwner();
    const thief = newOwner();
    await test.store.delegations.put(createDelegation(victim));
    await test.store.delegations.put(createDelegation(thief));
    await execute(
      `update delegations set ciphertext = (select ciphertext from delegations where owner = '${victim}') where owner = '${thief}'`,
    );
    expect(await test.store.delegations.get({ owner: thief, audience })).toMatchObject({
      error: 'unreadable',
    });
  });

  it('DelegationStore.put encrypts the token', async () => {
    await test.store.delegations.put(createDelegation(newOwner()));
    const stored = await (engine === 'sqlite' ? rawFiles() : rawRows());
    expect(stored).toContain('bafyfirst');
    expect(stored).not.toContain(raw.slice(0, 16));
    expect(stored).not.toContain(Buffer.from(raw).toString('base64').slice(0, 16));
  });

  describe('with too many delegations', () => {
    const store = useStore(engine, { clock: () => now });
    let now = Date.now();
    const use = (owner: string, cid: string, lifeSeconds = 3600) => {
      const expiresAt = Math.floor(now / 1000) + lifeSeconds;
      return { owner, audience, cid, capabilities, expiresAt };
    };
    const listCids = async (owner: string) =>
      (await store.store.delegations.list(owner)).map(({ cid }) => cid);

    it('DelegationStore.recordUse removes expired ones first, then replaced ones, then the least recently used', async () => {
      const { delegations, revocations } = store.store;
      const owner = newOwner();
      const name = (kind: string) => `${kind}-${owner}`;
      await delegations.recordUse(use(owner, name('expires'), 10));
      await delegations.put({ ...use(owner, name('replaced')), raw });
      await delegations.put({ ...use(owner, name('current')), raw });
      for (let i = 3; i < DELEGATIONS_PER_OWNER; i += 1)
        await delegations.recordUse(use(owner, name(`used${i}`)));
      expect(await listCids(owner)).toHaveLength(DELEGATIONS_PER_OWNER);
      now += 10_000;
      await delegations.recordUse(use(owner, name('a')));
      expect(await listCids(owner)).not.toContain(name('expires'));
      expect(await listCids(owner)).toContain(name('replaced'));
      await delegations.recordUse(use(owner, name('b')));
      expect(await listCids(owner)).not.toContain(name('replaced'));
      expect(await delegations.recordUse(use(owner, name('c')))).toEqual([name('used3')]);
      expect(await listCids(owner)).not.toContain(name('used3'));
      expect(await listCids(owner)).toContain(name('current'));
      expect(await listCids(owner)).toHaveLength(DELEGATIONS_PER_OWNER);
      // What was given to the host and is still valid is not forgotten without being revoked.
      expect(await revocations.has(name('replaced'))).toBe(true);
      expect(await revocations.has(name('used3'))).toBe(false);
    });

    it('DelegationStore.put returns the delegations that it removed and revoked', async () => {
      const { delegations } = store.store;
      const owner = newOwner();
      for (let i = 0; i < DELEGATIONS_PER_OWNER; i += 1)
        expect(await delegations.put({ ...use(owner, `${i}-${owner}`), raw })).toEqual({
          dropped: [],
          revoked: [],
        });
      const room = await delegations.put({ ...use(owner, `last-${owner}`), raw });
      expect(room).toEqual({ dropped: [`0-${owner}`], revoked: [`0-${owner}`] });
    });

    it('DelegationStore.recordUse writes at most once an hour', async () => {
      const { delegations } = store.store;
      const owner = newOwner();
      const first = now;
      const lastUse = async () => (await delegations.list(owner))[0]?.lastUsedAt;
      await delegations.recordUse(use(owner, 'bafyused'));
      now += USE_PRECISION_MS - 1;
      await delegations.recordUse(use(owner, 'bafyused'));
      expect(await lastUse()).toBe(first);
      now += 1;
      await delegations.recordUse(use(owner, 'bafyused'));
      expect(await lastUse()).toBe(now);
    });

    it('DelegationStore.recordPlugins stores plugin and time of known delegations only', async () => {
      const { delegations } = store.store;
      const owner = newOwner();
      const by = (cid: string, plugin: string, at: number) =>
        ({ owner, cid, purpose: 'services', plugin, at }) as const;
      await delegations.recordUse(use(owner, 'bafyused'));
      await delegations.recordPlugins([
        by('bafyused', 'notes', now + 5),
        by('bafyunknown', 'notes', now + 5),
      ]);
      expect(await delegations.list(owner)).toMatchObject([
        { cid: 'bafyused', lastUsedBy: 'notes', lastUsedAt: now + 5 },
      ]);
      await delegations.recordPlugins([by('bafyused', 'maps', now)]);
      expect(await delegations.list(owner)).toMatchObject([
        { lastUsedBy: 'maps', lastUsedAt: now + 5 },
      ]);
    });

    it('DelegationStore.prune deletes expired ones, but not the current one', async () => {
      const { delegations } = store.store;
      const owner = newOwner();
      await delegations.put({ ...use(owner, 'bafyreplaced', 10), raw });
      await delegations.put({ ...use(owner, 'bafycurrent', 10), raw });
      await delegations.recordUse({ ...use(owner, 'bafyendless'), expiresAt: null });
      now += 10_000;
      await store.forAllUsers(() => delegations.prune());
      expect(await listCids(owner)).toEqual(['bafyendless', 'bafycurrent']);
    });

    it('DelegationStore.prune deletes presented ones that were not used for 90 days', async () => {
      const { delegations, revocations } = store.store;
      const owner = newOwner();
      const endless = (name: string) => ({ ...use(owner, `${name}-${owner}`), expiresAt: null });
      await delegations.recordUse(endless('idle'));
      await delegations.recordUse({ ...endless('far'), expiresAt: 253_402_300_799 });
      await delegations.recordUse(endless('used'));
      await delegations.put({ ...endless('replaced'), raw });
      await delegations.put({ ...endless('current'), raw });
      for (const name of ['replaced', 'current']) await delegations.recordUse(endless(name));
      now += UNUSED_PRESENTED_MS - 1;
      await delegations.recordUse(endless('used'));
      await store.forAllUsers(() => delegations.prune());
      expect(await listCids(owner)).toHaveLength(5);
      now += 1;
      await store.forAllUsers(() => delegations.prune());
      const left = ['current', 'replaced', 'used'].map((name) => `${name}-${owner}`);
      expect([...(await listCids(owner))].sort()).toEqual(left);
      expect(await revocations.has(`idle-${owner}`)).toBe(false);
    });
  });

  function rawFiles(): string {
    const { dataDir } = test.options;
    return readdirSync(dataDir)
      .map((file) => readFileSync(join(dataDir, file), 'latin1'))
      .join();
  }

  async function rawRows(): Promise<string> {
    return JSON.stringify(await execute('select * from delegations'));
  }

  async function execute(statement: string): Promise<unknown[]> {
    const { databaseUrl, dataDir } = test.options;
    if (databaseUrl === undefined) {
      const handle = new DatabaseSync(join(dataDir, 'sibyl.db'));
      handle.exec(statement);
      handle.close();
      return [];
    }
    const client = new pg.Client({ connectionString: databaseUrl });
    await client.connect();
    const { rows } = await client.query(statement);
    await client.end();
    return rows;
  }
});

describe.each(engines)('DelegationStore beside delegations of other purposes on %s', (engine) => {
  const now = Date.now();
  const test = useStore(engine, { clock: () => now });
  const registerKey = (owner: string, cid: string) =>
    test.store.accessKeys.register({
      ...{ owner, cid, audience, capabilities, name: 'Key', caveats: {} },
      expiresAt: Math.floor(now / 1000) + 3600,
    });
  const listPurposes = async (owner: string, wanted: string) =>
    (await test.store.delegations.list(owner))
      .filter(({ cid }) => cid === wanted)
      .map(({ purpose }) => purpose)
      .sort();

  it('DelegationStore.put replaces the token of the same oracle and purpose alone', async () => {
    const { delegations, grants } = test.store;
    const owner = newOwner();
    const purpose = 'schedule';
    const other = 'did:key:zOther';
    await delegations.put({ ...createDelegation(owner, 'bafyother'), audience: other });
    await grants.put({ ...createDelegation(owner, 'bafygrant'), purpose });
    await delegations.put(createDelegation(owner, 'bafycurrent'));
    await delegations.recordUse(createDelegation(owner, 'bafypresented'));
    const current = async (of: string) => {
      const found = await delegations.get({ owner, audience: of });
      return 'ok' in found ? found.ok.cid : found.error;
    };
    expect(await current(other)).toBe('bafyother');
    expect(await current(audience)).toBe('bafycurrent');
    expect(await current('did:key:zUnknown')).toBe('not-found');
    expect(await grants.get({ owner, purpose, cid: 'bafygrant' })).toHaveProperty('raw', raw);
  });

  it('DelegationStore.get does not return a grant', async () => {
    const { delegations, grants } = test.store;
    const owner = newOwner();
    await grants.put({ ...createDelegation(owner, 'bafygrant'), purpose: 'schedule' });
    expect(await delegations.get({ owner, audience })).toEqual({ error: 'not-found' });
  });

  it('DelegationStore.recordUse and recordPlugins change one delegation', async () => {
    const { accessKeys, delegations } = test.store;
    const owner = newOwner();
    await registerKey(owner, 'bafyused');
    await accessKeys.use({ owner, cid: 'bafyused' });
    await delegations.recordUse(createDelegation(owner, 'bafyunused'));
    await delegations.recordUse(createDelegation(owner, 'bafyused'));
    const use = { owner, cid: 'bafyused', purpose: 'services', plugin: 'notes', at: now } as const;
    await delegations.recordPlugins([use]);
    const uses = (await delegations.list(owner)).map((each) => [
      each.cid,
      each.purpose,
      each.lastUsedBy,
    ]);
    expect(uses).toEqual([
      ['bafyused', 'services', 'notes'],
      ['bafyunused', 'services', undefined],
      ['bafyused', 'access-key', undefined],
    ]);
  });

  it('DelegationStore.put counts and removes no access keys', async () => {
    const { delegations } = test.store;
    const owner = newOwner();
    const name = (at: number) => `${at}-${owner}`;
    await registerKey(owner, name(-1));
    await registerKey(owner, name(0));
    for (let i = 0; i < DELEGATIONS_PER_OWNER; i += 1)
      expect(await delegations.put(createDelegation(owner, name(i)))).toHaveProperty('dropped', []);
    const { dropped } = await delegations.put(createDelegation(owner, 'bafylast'));
    expect(dropped).toEqual([name(0)]);
    expect(await test.store.accessKeys.list(owner)).toHaveLength(2);
    expect(await listPurposes(owner, 'bafylast')).toEqual(['services']);
    expect(await listPurposes(owner, name(-1))).toEqual(['access-key']);
  });

  it('DelegationStore.revokeStored leaves access keys', async () => {
    const { delegations } = test.store;
    const owner = newOwner();
    await registerKey(owner, `key-${owner}`);
    await delegations.put(createDelegation(owner, `stored-${owner}`));
    expect(await delegations.revokeStored(owner)).toEqual([`stored-${owner}`]);
    expect(await listPurposes(owner, `key-${owner}`)).toEqual(['access-key']);
  });

  it('DelegationStore.put takes the time from the delegations of its user', async () => {
    const { delegations } = test.store;
    const [owner, other] = [newOwner(), newOwner()];
    for (const cid of ['bafyfirst', 'bafysecond', 'bafythird'])
      await delegations.put(createDelegation(other, cid));
    await delegations.put(createDelegation(owner));
    expect(await delegations.list(owner)).toMatchObject([{ createdAt: now }]);
    expect(await delegations.list(other)).toMatchObject([
      { createdAt: now + 2 },
      { createdAt: now + 1 },
      { createdAt: now },
    ]);
  });
});
