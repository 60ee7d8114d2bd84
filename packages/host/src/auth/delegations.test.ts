import { tmpdir } from 'node:os';
import {
  createDidKeyResolver,
  createMinter,
  createVerifier,
  type DidResolver,
  generateSigner,
  mintDelegation,
  systemClock,
} from '@sibyl/ucan';
import { pino } from 'pino';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { newOwner, useStore } from '../../test/support/test-database.js';
import { MemoryHostBus } from '../bus/host-bus.js';
import { DiskSpace } from '../store/disk-space.js';
import { PresentedDelegations } from './authenticator.js';
import type { Caller } from './caller.js';
import { DelegatedAuthority } from './delegated-authority.js';
import { DelegationService } from './delegations.js';

const oracle = generateSigner();
const logger = pino({ level: 'silent' });
const inSeconds = (seconds: number) => systemClock() + seconds;
const fullDisk = () => new DiskSpace(tmpdir(), Number.MAX_SAFE_INTEGER);

type Fields = Partial<Parameters<typeof mintDelegation>[0]>;

function createUser() {
  const signer = generateSigner();
  const delegate = (fields: Fields = {}) => {
    const { ok, error } = mintDelegation({
      signer,
      audience: oracle.did,
      capabilities: [{ can: 'store/*', with: signer.did }],
      expiration: inSeconds(3600),
      nonce: crypto.randomUUID(),
      ...fields,
    });
    if (error) throw new Error(error.detail);
    return { raw: ok.token, cid: ok.cid, expiration: ok.expiration };
  };
  const callWith = (presentedDelegation?: string): Caller => {
    return { did: signer.did, expiration: inSeconds(300), presentedDelegation };
  };
  return { did: signer.did, delegate, callWith, caller: callWith() };
}

describe('DelegationService', () => {
  const test = useStore('sqlite');
  afterEach(() => {
    vi.useRealTimers();
    vi.restoreAllMocks();
  });

  interface Choice {
    readonly disk?: DiskSpace;
    readonly isStoreAway?: boolean;
    readonly resolver?: DidResolver;
  }

  function open({ disk, isStoreAway = false, resolver = createDidKeyResolver() }: Choice = {}) {
    const { delegations, revocations } = test.store;
    const spent = new Set<string>();
    const isRevoked = async (cid: string) => {
      if (isStoreAway) throw new Error('connect ECONNREFUSED');
      return revocations.has(cid);
    };
    const verifier = createVerifier({
      audience: oracle.did,
      resolver,
      revocations: { isRevoked },
      spentTokens: spent,
    });
    const common = { oracleDid: oracle.did, delegations, logger };
    const presented = new PresentedDelegations({ ...common, disk, loginMaxDays: undefined });
    const authority = new DelegatedAuthority({
      ...common,
      verifier,
      minter: createMinter({ signer: oracle }),
      resolver,
      presented,
      revocations,
      bus: new MemoryHostBus('own', logger),
    });
    /** What hosts and plugins have received. */
    const forgotten: string[] = [];
    authority.onRevocation(async (cid) => {
      forgotten.push(cid);
      return [];
    });
    const store = { delegations, revocations, disk };
    const deps = { oracleDid: oracle.did, verifier, authority, presented, store };
    return { service: new DelegationService(deps), authority, presented, forgotten, spent };
  }

  const listCids = async (service: DelegationService, caller: Caller) =>
    (await service.list(caller)).delegations.map(({ cid }) => cid);

  it('store keeps a delegation of the caller and returns its expiry, if it has one', async () => {
    const { service } = open();
    const [alice, bob] = [createUser(), createUser()];
    const { raw, expiration } = alice.delegate();
    expect(await service.status(alice.caller)).toEqual({ authorized: false });
    expect(await service.store(alice.caller, { raw })).toBe(expiration);
    expect(await service.status(alice.caller)).toEqual({ authorized: true, expiration });
    const forever = bob.delegate({ expiration: null });
    expect(await service.store(bob.caller, { raw: forever.raw })).toBeUndefined();
    expect(await service.status(bob.caller)).toEqual({ authorized: true });
    expect((await service.list(bob.caller)).delegations[0]).not.toHaveProperty('expiration');
  });

  const anyone = generateSigner().did;
  it.each<[string, Fields, RegExp]>([
    ['has expired', { expiration: inSeconds(-60) }, /has expired/],
    ['is for another oracle', { audience: anyone }, new RegExp(`this oracle is ${oracle.did}`)],
    ['expires in milliseconds', { expiration: 4_000_000_000_000 }, /after the year 9999/],
    ['begins later', { notBefore: inSeconds(600) }, /not valid yet/],
    ['is an invocation', { capabilities: [{ can: 'oracle/chat', with: 'a:b' }] }, /an invocation/],
    ['grants nothing', { capabilities: [] }, /not a valid UCAN delegation/],
  ])('store refuses a delegation that %s, and says why', async (_, fields, message) => {
    const { service } = open();
    const alice = createUser();
    const { raw, cid } = alice.delegate(fields);
    await expect(service.store(alice.caller, { raw })).rejects.toMatchObject({
      code: 'invalid_delegation',
      message: expect.stringMatching(message),
      cause: { cid, code: expect.any(String) },
    });
    expect(await service.list(alice.caller)).toEqual({ delegations: [] });
  });

  it('store refuses a delegation that was revoked, used once or is of another user', async () => {
    const { service, spent } = open();
    const alice = createUser();
    const [revoked, used, foreign] = [alice.delegate(), alice.delegate(), createUser().delegate()];
    await test.store.revocations.add({ owner: alice.did, cid: revoked.cid, expiresAt: null });
    spent.add(used.cid);
    const refuse = ({ raw }: { readonly raw: string }, code: string, text = '') =>
      expect(service.store(alice.caller, { raw })).rejects.toMatchObject({
        code,
        message: expect.stringContaining(text),
      });
    await refuse(revoked, 'invalid_delegation', 'was revoked');
    await refuse(used, 'invalid_delegation', 'not used before');
    await refuse(foreign, 'foreign_delegation');
    await refuse({ raw: 'none' }, 'invalid_delegation', 'base64 CAR');
    expect(await service.list(alice.caller)).toEqual({ delegations: [] });
  });

  it.each([
    [
      'did_unavailable',
      { code: 'invalid_delegation', message: expect.stringContaining('try again') },
    ],
    ['did_busy', { code: 'verification_busy', retryAfterSeconds: 3 }],
  ] as const)('store asks to try again after the failure %s of a lookup', async (code, error) => {
    const resolver = { resolve: async () => ({ error: { code, detail: 'timeout' } }) };
    const alice = createUser();
    const { raw } = alice.delegate();
    await expect(open({ resolver }).service.store(alice.caller, { raw })).rejects.toMatchObject(
      error,
    );
  });

  it('store refuses a body that contradicts the token, with a line for each field', async () => {
    const { service } = open();
    const alice = createUser();
    const { raw, expiration } = alice.delegate();
    const truth = { raw, issuer: alice.did, audience: oracle.did, expiration: expiration ?? 0 };
    const lie = (body: object) => service.store(alice.caller, { ...truth, ...body });
    await expect(lie({ issuer: anyone, expiration: 1 })).rejects.toMatchObject({
      code: 'validation_failed',
      lines: [
        expect.stringMatching(new RegExp(`^issuer: .+ ${alice.did}$`)),
        expect.stringMatching(new RegExp(`^expiration: .+ ${expiration}$`)),
      ],
    });
    await expect(lie({ audience: anyone })).rejects.toMatchObject({
      lines: [expect.stringMatching(new RegExp(`^audience: .+ ${oracle.did}$`))],
    });
    const forever = alice.delegate({ expiration: null });
    await expect(lie({ raw: forever.raw })).rejects.toMatchObject({
      lines: [expect.stringMatching(/^expiration: .+ never expires$/)],
    });
    expect(await service.list(alice.caller)).toEqual({ delegations: [] });
    expect(await lie({})).toBe(expiration);
  });

  it('store keeps nothing while disk space is low, the store is away or the caller cannot pay', async () => {
    const alice = createUser();
    const { raw } = alice.delegate();
    const refuse = ({ service }: ReturnType<typeof open>, caller: Caller, code: string) =>
      expect(service.store(caller, { raw })).rejects.toMatchObject({ code });
    await refuse(open({ disk: fullDisk() }), alice.caller, 'disk_full');
    await refuse(open({ isStoreAway: true }), alice.caller, 'store_unavailable');
    await refuse(open(), { ...alice.caller, charge: () => undefined }, 'rate_limited');
    expect(await test.store.delegations.list(alice.did)).toEqual([]);
  });

  it('store beyond the limit revokes the oldest replaced one, and records presented ones again', async () => {
    const { service, presented, forgotten } = open();
    const alice = createUser();
    const forget = vi.spyOn(presented, 'forget');
    const stored = Array.from({ length: 101 }, () => alice.delegate());
    for (const { raw } of stored) await service.store(alice.caller, { raw });
    const oldest = stored[0]?.cid ?? '';
    expect(forgotten).toEqual([oldest]);
    expect(await test.store.revocations.has(oldest)).toBe(true);
    expect(forget.mock.calls.filter(([cids]) => cids.length > 0)).toEqual([[[oldest]]]);
    expect(await listCids(service, alice.caller)).toHaveLength(100);
  });

  it('status is not authorized once the stored delegation has expired, is revoked or unreadable', async () => {
    const { service } = open();
    const alice = createUser();
    const { raw, cid, expiration } = alice.delegate();
    await service.store(alice.caller, { raw });
    vi.useFakeTimers({ now: Date.now() + 3_601_000, toFake: ['Date'] });
    expect(await service.status(alice.caller)).toEqual({ authorized: false, expiration });
    vi.useRealTimers();
    expect(await service.status(alice.caller)).toEqual({ authorized: true, expiration });
    await test.store.revocations.add({ owner: alice.did, cid, expiresAt: expiration });
    expect(await service.status(alice.caller)).toEqual({ authorized: false, expiration });
    const unreadable = { error: 'unreadable', reason: 'another key' } as const;
    vi.spyOn(test.store.delegations, 'get').mockResolvedValueOnce(unreadable);
    expect(await service.status(alice.caller)).toEqual({ authorized: false });
  });

  it('status says that it cannot know, rather than no, while the store is away or the caller cannot pay', async () => {
    const alice = createUser();
    await open().service.store(alice.caller, { raw: alice.delegate().raw });
    const away = open({ isStoreAway: true }).service.status(alice.caller);
    await expect(away).rejects.toMatchObject({ code: 'store_unavailable' });
    const poor = { ...alice.caller, charge: () => undefined };
    await expect(open().service.status(poor)).rejects.toMatchObject({ code: 'rate_limited' });
  });

  it('list shows each delegation with its capabilities and its last use by a plugin', async () => {
    const { service, authority } = open();
    const alice = createUser();
    const { raw, cid, expiration } = alice.delegate();
    await service.store(alice.caller, { raw });
    const info = {
      cid,
      audience: oracle.did,
      capabilities: [{ can: 'store/*', with: alice.did }],
      expiration,
      createdAt: expect.stringMatching(/^20.*Z$/),
      purpose: 'services',
      isCurrent: true,
    };
    expect(await service.list(alice.caller)).toEqual({ delegations: [info] });
    const before = Date.now();
    authority.recordUse({ owner: alice.did, cid, purpose: 'services', plugin: 'notes' });
    const { delegations } = await service.list(alice.caller);
    const lastUsedAt = expect.stringMatching(/^20.*Z$/);
    expect(delegations).toEqual([{ ...info, lastUsedAt, lastUsedBy: 'notes' }]);
    expect(Date.parse(delegations[0]?.lastUsedAt ?? '')).toBeGreaterThanOrEqual(before);
    expect(await service.list(createUser().caller)).toEqual({ delegations: [] });
  });

  it('list takes the capabilities of old rows, which have none, from the stored token', async () => {
    const { service } = open();
    const alice = createUser();
    const own = [{ can: 'store/*', with: alice.did }];
    const other = [{ can: 'upload/*', with: alice.did }];
    const listed = async () =>
      (await service.list(alice.caller)).delegations.map(({ capabilities }) => capabilities);
    await service.store(alice.caller, { raw: alice.delegate({ capabilities: other }).raw });
    await service.store(alice.caller, { raw: alice.delegate().raw });
    const [current, replaced] = await test.store.delegations.list(alice.did);
    if (!current || !replaced) throw new Error('not stored');
    const rows = vi.spyOn(test.store.delegations, 'list');
    rows.mockResolvedValueOnce([{ ...current, capabilities: undefined }, replaced]);
    expect(await listed()).toEqual([own, other]);
    rows.mockResolvedValueOnce([{ ...current, capabilities: undefined }]);
    expect(await listed()).toEqual([own]);
    await test.store.delegations.revokeStored(alice.did);
    rows.mockResolvedValueOnce([{ ...current, capabilities: undefined }]);
    expect(await listed()).toEqual([[]]);
  });

  it('revoke ends the stored delegation, those it replaced and the one in the request', async () => {
    const { service, forgotten } = open();
    const [alice, bob] = [createUser(), createUser()];
    const [replaced, stored, presented, other] = [1, 2, 3, 4].map(() => alice.delegate());
    if (!replaced || !stored || !presented || !other) throw new Error('not signed');
    for (const { raw } of [replaced, stored]) await service.store(alice.caller, { raw });
    const foreign = bob.delegate();
    await service.store(bob.caller, foreign);
    await service.revoke(alice.callWith(presented.raw));
    const cids = [replaced.cid, stored.cid, presented.cid];
    expect(forgotten.toSorted()).toEqual(cids.toSorted());
    const revoked = await test.store.revocations.filterRevoked([...cids, other.cid, foreign.cid]);
    expect(new Set(revoked)).toEqual(new Set(cids));
    expect(await service.status(bob.caller)).toMatchObject({ authorized: true });
  });

  it('revoke ends a delegation in the request that is not valid now, but none of another user', async () => {
    const { service, forgotten } = open();
    const [alice, bob] = [createUser(), createUser()];
    const later = alice.delegate({ notBefore: inSeconds(600), expiration: null });
    const foreign = bob.delegate();
    for (const raw of [later.raw, foreign.raw, 'garbage', undefined])
      await service.revoke(alice.callWith(raw));
    expect(forgotten).toEqual([later.cid]);
    expect(await test.store.revocations.has(later.cid)).toBe(true);
    expect(await test.store.revocations.has(foreign.cid)).toBe(false);
  });

  it('revoke stores nothing for a delegation in the request that its issuer did not sign', async () => {
    const { service, forgotten } = open();
    const [alice, eve] = [createUser(), generateSigner()];
    const forger = { ...eve, did: alice.did, sign: (bytes: Uint8Array) => eve.sign(bytes) };
    const { raw, cid } = alice.delegate({ signer: forger, expiration: null });
    await service.revoke(alice.callWith(raw));
    expect((await service.revokeAll(alice.callWith(raw))).revoked).toBe(0);
    expect(await test.store.revocations.has(cid)).toBe(false);
    expect(forgotten).toEqual([]);
  });

  it('revoke stores no revocation of the one in the request while disk space is low', async () => {
    const { service, forgotten } = open({ disk: fullDisk() });
    const alice = createUser();
    const { raw, cid } = alice.delegate();
    await expect(service.revoke(alice.callWith(raw))).rejects.toMatchObject({ code: 'disk_full' });
    expect([forgotten, await test.store.revocations.has(cid)]).toEqual([[], false]);
    await service.revoke(alice.caller);
  });

  it('revokeOne ends only the delegation of the caller that is named', async () => {
    const { service, forgotten } = open();
    const [alice, eve] = [createUser(), createUser()];
    const [kept, gone] = [alice.delegate(), alice.delegate()];
    for (const { raw } of [gone, kept]) await service.store(alice.caller, { raw });
    const missing = { code: 'delegation_not_found' };
    await expect(service.revokeOne(eve.caller, gone.cid)).rejects.toMatchObject(missing);
    expect(forgotten).toEqual([]);
    await service.revokeOne(alice.caller, gone.cid);
    expect(forgotten).toEqual([gone.cid]);
    expect(await listCids(service, alice.caller)).toEqual([kept.cid]);
    await expect(service.revokeOne(alice.caller, gone.cid)).rejects.toMatchObject(missing);
  });

  it('revokeAll ends all of the caller and counts each once, also the one in the request', async () => {
    const { service, presented, forgotten } = open();
    const alice = createUser();
    const [stored, shown] = [alice.delegate(), alice.delegate()];
    await service.store(alice.caller, stored);
    const facts = { audience: oracle.did, capabilities: [], issuers: [], cids: [], token: '' };
    const { cid } = shown;
    await presented.record({ ...facts, did: alice.did, cid, expiration: inSeconds(60) });
    expect((await service.revokeAll(alice.callWith(stored.raw))).revoked).toBe(2);
    expect(new Set(forgotten)).toEqual(new Set([stored.cid, cid]));
    expect(await service.list(alice.caller)).toEqual({ delegations: [] });
    const again = await service.revokeAll(alice.callWith(alice.delegate().raw));
    expect(again).toEqual({ revoked: 1, stopped: [] });
    const stranger = await service.revokeAll({ ...alice.caller, did: newOwner() });
    expect(stranger).toEqual({ revoked: 0, stopped: [] });
  });
});
