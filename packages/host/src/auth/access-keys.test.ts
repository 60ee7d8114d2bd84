import { tmpdir } from 'node:os';
import {
  createDidKeyResolver,
  createRevocationSet,
  createVerifier,
  generateSigner,
  mintDelegation,
  systemClock,
} from '@sibyl/ucan';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { useStore } from '../../test/support/test-database.js';
import { DiskSpace } from '../store/disk-space.js';
import { AccessKeys } from './access-keys.js';
import type { Caller } from './caller.js';

const oracle = generateSigner();
const capability = { can: 'oracle/chat', with: 'ixo:oracle' };
const inDays = (days: number) => systemClock() + days * 86_400;

type Fields = Partial<Parameters<typeof mintDelegation>[0]>;

function createUser() {
  const signer = generateSigner();
  const caller: Caller = {
    did: signer.did,
    expiration: systemClock() + 300,
    presentedDelegation: undefined,
  };
  const sign = (fields: Fields = {}) => {
    const { ok, error } = mintDelegation({
      signer,
      audience: oracle.did,
      capabilities: [capability],
      expiration: inDays(30),
      nonce: crypto.randomUUID(),
      ...fields,
    });
    if (error) throw new Error(error.detail);
    return ok;
  };
  return { did: signer.did, caller, sign };
}

const withCaveats = (nb: Readonly<Record<string, string | number>>): Fields => ({
  capabilities: [{ ...capability, nb }],
});

describe('AccessKeys', () => {
  const test = useStore('sqlite', { clock: () => Date.now() });
  afterEach(() => {
    vi.useRealTimers();
    vi.restoreAllMocks();
  });

  function open({ disk, isStoreAway = false }: { disk?: DiskSpace; isStoreAway?: boolean } = {}) {
    const revoked = createRevocationSet({ clock: systemClock });
    const away = { isRevoked: () => Promise.reject(new Error('connect ECONNREFUSED')) };
    const revocations = isStoreAway ? away : revoked;
    const resolver = createDidKeyResolver();
    const verifier = createVerifier({ audience: oracle.did, resolver, revocations });
    const forgotten: string[] = [];
    const forget = async (cids: readonly string[]) => {
      forgotten.push(...cids);
      return [];
    };
    const authority = { forget };
    const { accessKeys } = test.store;
    const store = { accessKeys, disk };
    const keys = new AccessKeys({ oracleDid: oracle.did, verifier, authority, store });
    return { keys, forgotten, revoked };
  }

  /** A user with a registered key, and the user as the caller who logs in with it. */
  async function register(nb: Parameters<typeof withCaveats>[0] = {}) {
    const opened = open();
    const user = createUser();
    const { token, cid } = user.sign(withCaveats(nb));
    const info = await opened.keys.register(user.caller, { token, name: 'laptop' });
    const caller: Caller = { ...user.caller, accessKey: { cid, caveats: info.caveats } };
    const countTurns = async () => (await opened.keys.list(user.caller))[0]?.turnsToday;
    return { ...opened, user, caller, token, cid, info, countTurns };
  }

  it('register returns what list returns: name, caveats and times, but not the token', async () => {
    const before = Date.now();
    const { keys, user, cid, info } = await register({ model: 'small', session: 's1' });
    expect(info).toEqual({
      id: cid,
      name: 'laptop',
      caveats: { model: 'small', session: 's1' },
      expiration: expect.any(Number),
      createdAt: expect.stringMatching(/Z$/),
    });
    expect(Date.parse(info.createdAt)).toBeGreaterThanOrEqual(before);
    expect(await keys.list(user.caller)).toEqual([info]);
    expect(await keys.list(createUser().caller)).toEqual([]);
  });

  it('register records the key with its capability among the delegations of the user', async () => {
    const { user, cid } = await register();
    expect(await test.store.delegations.list(user.did)).toMatchObject([
      { cid, purpose: 'access-key', audience: oracle.did, capabilities: [capability] },
    ]);
  });

  it.each<[string, Fields, RegExp]>([
    ['has expired', { expiration: systemClock() - 60 }, /has expired/],
    ['begins later', { notBefore: systemClock() + 600 }, /is not valid yet/],
    ['never expires', { expiration: null }, /within 366 days/],
    ['expires late', { expiration: inDays(367) }, /within 366 days/],
    ['is for another oracle', { audience: generateSigner().did }, new RegExp(`is ${oracle.did}$`)],
    [
      'has another ability',
      { capabilities: [{ ...capability, can: 'oracle/rules' }] },
      /exactly one capability: oracle\/chat at ixo:oracle/,
    ],
    [
      'has a second capability',
      { capabilities: [capability, { can: 'store/get', with: 'a:b' }] },
      /exactly one capability/,
    ],
    ['has an unknown caveat', withCaveats({ weekday: 1 }), /does not know: weekday: unknown field/],
    [
      'has several wrong caveats',
      withCaveats({ turnsPerDay: 0, weekday: 1 }),
      /turnsPerDay: .+; weekday: unknown field/,
    ],
  ])('register refuses a key that %s, and says why', async (_, fields, message) => {
    const { keys } = open();
    const user = createUser();
    const { token, cid } = user.sign(fields);
    await expect(keys.register(user.caller, { token, name: 'laptop' })).rejects.toMatchObject({
      code: 'validation_failed',
      message: expect.stringMatching(message),
      cause: { cid, code: expect.any(String) },
    });
    expect(await keys.list(user.caller)).toEqual([]);
  });

  it('register accepts a key that expires in exactly 366 days', async () => {
    const user = createUser();
    const { token, expiration } = user.sign({ expiration: inDays(366) });
    const registered = await open().keys.register(user.caller, { token, name: 'laptop' });
    expect(registered.expiration).toBe(expiration);
  });

  it('register refuses what is not a token, is revoked, has proofs or is of another user', async () => {
    const { keys, revoked } = open();
    const [alice, eve] = [createUser(), createUser()];
    const refuse = (token: string, error: object) =>
      expect(keys.register(alice.caller, { token, name: 'laptop' })).rejects.toMatchObject(error);
    const invalid = (text: string) => ({
      code: 'validation_failed',
      message: expect.stringContaining(text),
    });
    await refuse('none', invalid('not a valid UCAN'));
    const { token, cid } = alice.sign();
    revoked.add(cid, inDays(30));
    await refuse(token, invalid('was revoked'));
    const proof = eve.sign({ audience: alice.did }).token;
    const proven = alice.sign({ proofs: [proof], expiration: inDays(1) });
    await refuse(proven.token, invalid('without proofs'));
    await refuse(eve.sign().token, { code: 'foreign_delegation' });
    expect(await keys.list(alice.caller)).toEqual([]);
    expect(await keys.list(eve.caller)).toEqual([]);
  });

  it('register refuses more than 100 keys, but not a new name for one of them', async () => {
    const { keys, user, token } = await register();
    const add = () => keys.register(user.caller, { token: user.sign().token, name: 'more' });
    for (let n = 1; n < 100; n++) await add();
    await expect(add()).rejects.toMatchObject({ code: 'too_many_access_keys' });
    const renamed = await keys.register(user.caller, { token, name: 'phone' });
    expect(renamed.name).toBe('phone');
  });

  it('register stores nothing while disk space is low, the store is away or the caller cannot pay', async () => {
    const user = createUser();
    const { token } = user.sign();
    const register = (keys: AccessKeys, caller = user.caller) =>
      keys.register(caller, { token, name: 'laptop' });
    const full = open({ disk: new DiskSpace(tmpdir(), Number.MAX_SAFE_INTEGER) });
    await expect(register(full.keys)).rejects.toMatchObject({ code: 'disk_full' });
    const away = open({ isStoreAway: true });
    await expect(register(away.keys)).rejects.toMatchObject({ code: 'store_unavailable' });
    const { keys } = open();
    const poor = { ...user.caller, charge: () => undefined };
    await expect(register(keys, poor)).rejects.toMatchObject({ code: 'rate_limited' });
    expect(await keys.list(user.caller)).toEqual([]);
  });

  it('verify accepts a registered key and records its use', async () => {
    const { keys, user, token, cid, info } = await register({ turnsPerDay: 2 });
    const { ok } = await keys.verify(token, {});
    expect(ok).toMatchObject({ did: user.did, cid, caveats: { turnsPerDay: 2 } });
    const lastUsedAt = expect.stringMatching(/^20.*Z$/);
    expect(await keys.list(user.caller)).toEqual([{ ...info, lastUsedAt }]);
  });

  it('verify refuses a key that is not registered, is unknown or that the sender cannot pay for', async () => {
    const { keys, user, token } = await register();
    const other = user.sign();
    expect(await keys.verify(other.token, {})).toMatchObject({
      error: { code: 'wrong_purpose', cid: other.cid, issuer: user.did },
    });
    const unknown = user.sign(withCaveats({ weekday: 1 }));
    expect(await keys.verify(unknown.token, {})).toMatchObject({
      error: { code: 'has_caveats', cid: unknown.cid, issuer: user.did },
    });
    expect(await open().keys.verify(token, { charge: () => undefined })).toMatchObject({
      error: { code: 'cost_refused' },
    });
  });

  it('revoke ends the key of the caller only, and what was started with it', async () => {
    const { keys, user, cid, token, forgotten } = await register();
    const missing = { code: 'access_key_not_found' };
    await expect(keys.revoke(createUser().caller, cid)).rejects.toMatchObject(missing);
    await expect(keys.revoke(user.caller, 'another')).rejects.toMatchObject(missing);
    expect(forgotten).toEqual([]);
    await keys.revoke(user.caller, cid);
    expect(forgotten).toEqual([cid]);
    expect(await test.store.revocations.has(cid)).toBe(true);
    expect((await keys.verify(token, {})).error).toBeDefined();
    expect(await keys.list(user.caller)).toEqual([]);
  });

  it('takeTurn counts the turns of a key until its limit of the day', async () => {
    vi.useFakeTimers({ now: Date.UTC(2026, 0, 1, 23, 58, 30), toFake: ['Date'] });
    const { keys, caller, countTurns } = await register({ turnsPerDay: 2 });
    expect(await countTurns()).toBe(0);
    await keys.takeTurn(caller);
    await keys.takeTurn(caller);
    await expect(keys.takeTurn(caller)).rejects.toMatchObject({
      code: 'access_key_used_up',
      retryAfterSeconds: 90,
    });
    expect(await countTurns()).toBe(2);
    vi.setSystemTime(Date.UTC(2026, 0, 2));
    await keys.takeTurn(caller);
    expect(await countTurns()).toBe(1);
  });

  it('returnTurn makes room for another turn', async () => {
    vi.useFakeTimers({ now: Date.UTC(2026, 0, 1, 12), toFake: ['Date'] });
    const { keys, caller, countTurns } = await register({ turnsPerDay: 1 });
    await keys.takeTurn(caller);
    await keys.returnTurn(caller);
    expect(await countTurns()).toBe(0);
    await keys.takeTurn(caller);
    await expect(keys.takeTurn(caller)).rejects.toMatchObject({ code: 'access_key_used_up' });
  });

  it('takeTurn and returnTurn count nothing without a limit or without a key', async () => {
    const { keys, user, caller, countTurns } = await register({ model: 'small' });
    const { accessKeys } = test.store;
    const [taken, returned] = [
      vi.spyOn(accessKeys, 'takeTurn'),
      vi.spyOn(accessKeys, 'returnTurn'),
    ];
    for (const each of [caller, user.caller]) {
      await keys.takeTurn(each);
      await keys.returnTurn(each);
    }
    expect([taken.mock.calls, returned.mock.calls]).toEqual([[], []]);
    expect(await countTurns()).toBeUndefined();
  });
});
