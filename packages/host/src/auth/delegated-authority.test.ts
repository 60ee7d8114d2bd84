import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSafeFetch } from '@sibyl/safe-fetch';
import {
  createDidKeyResolver,
  createDidResolver,
  createDidWebResolver,
  createMinter,
  createVerifier,
  generateSigner,
  mintDelegation,
  readToken,
} from '@sibyl/ucan';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { startUcantoService, type UcantoService } from '../../test/support/ucanto-service.js';
import { type HostBus, MemoryHostBus } from '../bus/host-bus.js';
import { openStore, type Store } from '../store/store.js';
import { PresentedDelegations } from './authenticator.js';
import type { Caller } from './caller.js';
import { DelegatedAuthority } from './delegated-authority.js';

const oracle = generateSigner();
const logger = pino({ level: 'silent' });
const now = () => Math.floor(Date.now() / 1000);
let dataDir: string;
let store: Store;
let service: UcantoService;
let authority: DelegatedAuthority;

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'sibyl-authority-'));
  store = await openStore({ dataDir, secretKey: oracle.exportSeed() });
  service = await startUcantoService();
});
afterAll(async () => {
  service.close();
  await store.close();
  await rm(dataDir, { recursive: true });
});
beforeEach(() => {
  authority = openAuthority();
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

interface Choice {
  readonly bus?: HostBus;
  readonly onRejection?: () => void;
  readonly log?: (line: string) => void;
}

function openAuthority({ bus = createBus(), onRejection = () => {}, log = () => {} }: Choice = {}) {
  const fetch = createSafeFetch({ allow: ['127.0.0.0/8'] });
  const resolver = createDidResolver({
    methods: { key: createDidKeyResolver(), web: createDidWebResolver({ fetch, allowHttp: true }) },
  });
  return new DelegatedAuthority({
    oracleDid: oracle.did,
    verifier: createVerifier({
      audience: oracle.did,
      resolver,
      revocations: { isRevoked: (cid) => store.revocations.has(cid) },
      onRejection,
    }),
    minter: createMinter({ signer: oracle }),
    resolver,
    delegations: store.delegations,
    presented: new PresentedDelegations({
      oracleDid: oracle.did,
      delegations: store.delegations,
      disk: store.disk,
      logger,
      loginMaxDays: undefined,
    }),
    revocations: store.revocations,
    bus,
    logger: pino({ level: 'info' }, { write: log }),
  });
}

const createBus = () => new MemoryHostBus('own', logger);

function createUser() {
  const signer = generateSigner();
  const callWith = (presentedDelegation?: string): Caller => ({
    did: signer.did,
    expiration: now() + 300,
    presentedDelegation,
  });
  const delegate = ({
    can = 'store/*',
    audience = oracle.did,
    ttl = 3600,
  }: {
    can?: string;
    audience?: string;
    ttl?: number | null;
  } = {}) => {
    const expiration = ttl === null ? null : now() + ttl;
    const capabilities = [{ can, with: signer.did }];
    const minted = mintDelegation({ signer, audience, capabilities, expiration });
    if (minted.error) throw new Error(minted.error.detail);
    return minted.ok;
  };
  return { did: signer.did, callWith, delegate };
}

const keep = async (user: ReturnType<typeof createUser>, { ttl = 3600 } = {}) => {
  const { token, cid, expiration } = user.delegate({ ttl });
  await store.delegations.put({
    owner: user.did,
    audience: oracle.did,
    cid,
    capabilities: [{ can: 'store/*', with: user.did }],
    expiresAt: expiration,
    raw: token,
  });
  return cid;
};

const openUcan = (caller: Caller) => authority.turnUcan({ caller, plugin: 'notes' });

const add = (did: string) => ({ audience: service.did, can: 'store/add', with: did });

describe('DelegatedAuthority.turnUcan with a ucanto service', () => {
  it('mints invocations from the delegation in the request', async () => {
    const alice = createUser();
    const ucan = openUcan(alice.callWith(alice.delegate().token));
    const token = await ucan.mintInvocation(add(alice.did));
    expect(await service.execute(token)).toEqual({ ok: { stored: alice.did } });
    expect(service.calls.at(-1)).toEqual({ issuer: oracle.did, with: alice.did });
  });

  it('mints invocations from the stored delegation', async () => {
    const alice = createUser();
    await keep(alice);
    const token = await openUcan(alice.callWith()).mintInvocation(add(alice.did));
    expect(await service.execute(token)).toEqual({ ok: { stored: alice.did } });
  });

  it('rejects a capability that the user has not delegated', async () => {
    const [alice, eve] = [createUser(), createUser()];
    const ucan = openUcan(eve.callWith(eve.delegate().token));
    await expect(ucan.mintInvocation(add(alice.did))).rejects.toThrow(
      /has not delegated store.add/,
    );
  });

  it('resolves the DID of a service address', async () => {
    const ucan = openUcan(createUser().callWith());
    expect(await ucan.resolveServiceDid(service.url)).toBe(service.did);
  });

  it('rejects a service whose document names another DID', async () => {
    const liar = await startUcantoService({ documentId: 'did:web:bank.example' });
    const ucan = openUcan(createUser().callWith());
    await expect(ucan.resolveServiceDid(liar.url)).rejects.toThrow(/does not prove its DID/);
    liar.close();
  });
});

describe('capabilities of DelegatedAuthority.turnUcan', () => {
  it('are only those of the delegation', async () => {
    const alice = createUser();
    const ucan = openUcan(alice.callWith(alice.delegate().token));
    expect(await ucan.hasCapability({ can: 'store/add', with: alice.did })).toBe(true);
    expect(await ucan.hasCapability({ can: 'upload/add', with: alice.did })).toBe(false);
    await expect(
      ucan.requireCapability({ can: 'upload/add', with: alice.did }),
    ).rejects.toMatchObject({ code: 'forbidden' });
  });

  it('are none without a delegation', async () => {
    const alice = createUser();
    const ucan = openUcan(alice.callWith());
    expect(await ucan.hasCapability({ can: 'store/add', with: alice.did })).toBe(false);
    await expect(ucan.mintInvocation(add(alice.did))).rejects.toThrow(/has not delegated/);
  });

  it('never come from a delegation of another issuer', async () => {
    const [alice, eve] = [createUser(), createUser()];
    const ucan = openUcan(eve.callWith(alice.delegate().token));
    expect(await ucan.hasCapability({ can: 'store/add', with: alice.did })).toBe(false);
  });

  it('fall back to the stored delegation if the one in the request is invalid', async () => {
    const alice = createUser();
    await keep(alice);
    const ucan = openUcan(alice.callWith('garbage'));
    expect(await ucan.hasCapability({ can: 'store/add', with: alice.did })).toBe(true);
  });
});

describe('DelegatedAuthority with a login by delegation', () => {
  it('does not use the stored delegation once that of the login has expired', async () => {
    const alice = createUser();
    await keep(alice);
    const { token, cid } = alice.delegate({ can: 'upload/get', ttl: -60 });
    const wanted = { can: 'store/add', with: alice.did };
    const login = { ...alice.callWith(token), loginCids: [cid] };
    expect(await openUcan(login).hasCapability(wanted)).toBe(false);
    const beside = { ...alice.callWith(token), loginCids: ['an invocation'] };
    expect(await openUcan(beside).hasCapability(wanted)).toBe(true);
  });
});

describe('DelegatedAuthority with a delegation beside the login that allows less than the stored one', () => {
  it('does not use the stored one once the other has expired, unless it had when it arrived', async () => {
    const alice = createUser();
    await keep(alice);
    const { token } = alice.delegate({ can: 'upload/get', ttl: -60 });
    const wanted = { can: 'store/add', with: alice.did };
    const now = Date.now() / 1000;
    const since = { ...alice.callWith(token), presentedAt: now - 120 };
    expect(await openUcan(since).hasCapability(wanted)).toBe(false);
    await expect(openUcan(since).mintInvocation(add(alice.did))).rejects.toThrow(/not delegated/);
    const before = { ...alice.callWith(token), presentedAt: now };
    expect(await openUcan(before).hasCapability(wanted)).toBe(true);
  });

  it('does not use the stored one once the other was revoked', async () => {
    const alice = createUser();
    await keep(alice);
    const { token, cid, expiration } = alice.delegate({ can: 'upload/get' });
    const ucan = openUcan(alice.callWith(token));
    const wanted = { can: 'store/add', with: alice.did };
    expect(await ucan.hasCapability(wanted)).toBe(false);
    await store.revocations.add({ owner: alice.did, cid, expiresAt: expiration });
    authority.forget([cid]);
    expect(await ucan.hasCapability(wanted)).toBe(false);
  });

  it('uses the stored one if another user signed the other, also when it has ended', async () => {
    const [alice, eve] = [createUser(), createUser()];
    await keep(alice);
    const { token } = eve.delegate({ ttl: -60 });
    const caller = { ...alice.callWith(token), presentedAt: Date.now() / 1000 - 120 };
    expect(await openUcan(caller).hasCapability({ can: 'store/add', with: alice.did })).toBe(true);
  });
});

describe('DelegatedAuthority after a revocation', () => {
  it('forget drops the delegation and the invocations minted from it', async () => {
    const alice = createUser();
    const cid = await keep(alice);
    const ucan = openUcan(alice.callWith());
    const minted = await ucan.mintInvocation(add(alice.did));
    expect(await ucan.mintInvocation(add(alice.did))).toBe(minted);
    await store.delegations.revoke(alice.did, cid);
    authority.forget([cid]);
    await expect(ucan.mintInvocation(add(alice.did))).rejects.toThrow(/has not delegated/);
  });

  it('does not accept the same delegation in a request', async () => {
    const alice = createUser();
    const { token, cid, expiration } = alice.delegate();
    const ucan = openUcan(alice.callWith(token));
    await ucan.requireCapability({ can: 'store/add', with: alice.did });
    await store.revocations.add({ owner: alice.did, cid, expiresAt: expiration });
    expect(await ucan.hasCapability({ can: 'store/add', with: alice.did })).toBe(false);
  });
});

it('DelegatedAuthority.saveUses stores the last plugin of each delegation, in one write however often it signed', async () => {
  const [alice, bob] = [createUser(), createUser()];
  await keep(alice);
  await keep(bob);
  for (const plugin of ['notes', 'letters', 'notes', 'maps'])
    await authority.turnUcan({ caller: alice.callWith(), plugin }).mintInvocation(add(alice.did));
  await openUcan(bob.callWith()).mintInvocation(add(bob.did));
  const lastUsedBy = async ({ did }: { readonly did: string }) =>
    (await store.delegations.list(did))[0]?.lastUsedBy;
  expect(await lastUsedBy(alice)).toBeUndefined();
  await authority.saveUses();
  expect([await lastUsedBy(alice), await lastUsedBy(bob)]).toEqual(['maps', 'notes']);
});

it('DelegatedAuthority.turnUcan mints for minutes from a delegation that never expires', async () => {
  const alice = createUser();
  const ucan = openUcan(alice.callWith(alice.delegate({ ttl: null }).token));
  const token = await ucan.mintInvocation(add(alice.did));
  expect(readToken(token).ok?.root.expiration).toBeLessThanOrEqual(now() + 300);
  expect(await service.execute(token)).toEqual({ ok: { stored: alice.did } });
});

it('DelegatedAuthority.turnUcan mints nothing from a delegation that is about to expire', async () => {
  const alice = createUser();
  const ucan = openUcan(alice.callWith(alice.delegate({ ttl: 3 }).token));
  await expect(ucan.mintInvocation(add(alice.did))).rejects.toThrow(/Nothing was signed/);
});

describe('DelegatedAuthority.turnUcan', () => {
  it('reports the UCANs behind what it signs, and nothing if it signs nothing', async () => {
    const alice = createUser();
    const { token, cid } = alice.delegate();
    const used: (readonly string[])[] = [];
    const onUse = (cids: readonly string[]) => void used.push(cids);
    const ucan = authority.turnUcan({ caller: alice.callWith(token), plugin: 'notes', onUse });
    expect(ucan.hasSigningKey()).toBe(true);
    const wanted = { audience: service.did, can: 'upload/add', with: alice.did };
    await expect(ucan.mintInvocation(wanted)).rejects.toMatchObject({ code: 'forbidden' });
    expect(used).toEqual([]);
    await ucan.mintInvocation(add(alice.did));
    expect(used).toEqual([[cid]]);
  });

  it('charges the caller for verifying a delegation, once', async () => {
    const alice = createUser();
    const charge = vi.fn(() => () => undefined);
    const ucan = openUcan({ ...alice.callWith(alice.delegate().token), charge });
    await ucan.mintInvocation(add(alice.did));
    await ucan.mintInvocation(add(alice.did));
    expect(charge).toHaveBeenCalledTimes(1);
  });

  it('uses no delegation that the caller cannot pay for', async () => {
    const alice = createUser();
    const caller = { ...alice.callWith(alice.delegate().token), charge: () => undefined };
    expect(await openUcan(caller).hasCapability({ can: 'store/add', with: alice.did })).toBe(false);
  });

  it('counts no rejected token for a caller without a delegation', async () => {
    const onRejection = vi.fn();
    const alice = createUser();
    const has = (token?: string) =>
      openAuthority({ onRejection })
        .turnUcan({ caller: alice.callWith(token), plugin: 'notes' })
        .hasCapability({ can: 'store/add', with: alice.did });
    expect(await has()).toBe(false);
    expect(onRejection).not.toHaveBeenCalled();
    expect(await has('garbage')).toBe(false);
    expect(onRejection).toHaveBeenCalledTimes(1);
  });

  it('finds no DID for what is not an address', async () => {
    const resolving = openUcan(createUser().callWith()).resolveServiceDid('no address');
    await expect(resolving).rejects.toMatchObject({ code: 'forbidden' });
  });
});

describe('the log of DelegatedAuthority', () => {
  const WARN = 40;

  /** What is logged while the delegation of a caller is looked for in vain. */
  async function readLog(caller: Caller) {
    const lines: unknown[] = [];
    const logging = openAuthority({ log: (line) => void lines.push(JSON.parse(line)) });
    expect(await logging.findDelegation(caller)).toBeUndefined();
    return lines;
  }

  it('has nothing of a caller without a delegation', async () => {
    expect(await readLog(createUser().callWith())).toEqual([]);
  });

  it('names the delegation that was not used, and why', async () => {
    const [alice, eve] = [createUser(), createUser()];
    const { token, cid } = alice.delegate();
    const foreign = await readLog(eve.callWith(token));
    expect(foreign).toMatchObject([
      { did: eve.did, cid, reason: expect.stringContaining('other') },
    ]);
    const old = alice.delegate({ ttl: -60 });
    const expired = await readLog(alice.callWith(old.token));
    expect(expired).toMatchObject([{ did: alice.did, cid: old.cid, reason: 'expired' }]);
  });

  it('warns of a stored delegation that cannot be decrypted', async () => {
    const alice = createUser();
    const unreadable = { error: 'unreadable', reason: 'another key' } as const;
    vi.spyOn(store.delegations, 'get').mockResolvedValueOnce(unreadable);
    expect(await readLog(alice.callWith())).toMatchObject([
      { level: WARN, did: alice.did, reason: 'another key' },
    ]);
  });
});

describe('a revocation', () => {
  it('is sent to all other hosts, unless nothing was revoked', () => {
    const bus = createBus();
    const send = vi.spyOn(bus, 'send');
    const revoking = openAuthority({ bus });
    revoking.forget([]);
    expect(send).not.toHaveBeenCalled();
    revoking.forget(['one', 'two']);
    expect(send.mock.calls).toEqual([['others', 'revoked', { cids: ['one', 'two'] }]]);
  });

  it.each<[string, (own: DelegatedAuthority, bus: HostBus, cids: readonly string[]) => void]>([
    ['of this host', (own, _, cids) => own.forget(cids)],
    ['of another host', (_, bus, cids) => void bus.send(bus.hostId, 'revoked', { cids })],
  ])('%s ends what depends on it, and nothing else', async (_, revoke) => {
    const bus = createBus();
    const own = openAuthority({ bus });
    const ended: string[] = [];
    own.onRevoked(['one', 'two'], () => ended.push('login'));
    own.onRevoked(['three'], () => ended.push('another login'));
    own.onRevoked(['two'], () => ended.push('closed socket'))();
    const listen = (note: (cid: string) => void) => async (cid: string) => {
      note(cid);
      return [];
    };
    own.onRevocation(listen((cid) => ended.push(cid)));
    own.onRevocation(listen(() => ended.push('stopped listener')))();
    revoke(own, bus, ['two', 'four']);
    await Promise.resolve();
    expect(ended).toEqual(['login', 'two', 'four']);
  });

  it('that no message reported is found in the store', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const alice = createUser();
    const { cid, expiration } = alice.delegate();
    const ended: string[] = [];
    authority.onRevoked([cid], () => ended.push('login'));
    authority.onRevocation(async (revoked) => {
      ended.push(revoked);
      return [];
    });
    expect(await authority.hasRevoked(['other', cid])).toBe(false);
    await store.revocations.add({ owner: alice.did, cid, expiresAt: expiration });
    expect(await authority.hasRevoked(['other', cid])).toBe(true);
    expect(await authority.hasRevoked(['other'])).toBe(false);
    expect(ended).toEqual([]);
    vi.advanceTimersByTime(3_000);
    await expect.poll(() => ended).toEqual(['login', cid]);
  });

  it('drops what was verified and minted with the delegation, not what was with others', async () => {
    const alice = createUser();
    const { token, cid } = alice.delegate();
    const charge = vi.fn(() => () => undefined);
    const ucan = openUcan({ ...alice.callWith(token), charge });
    const minted = await ucan.mintInvocation(add(alice.did));
    authority.forget(['another']);
    expect(await ucan.mintInvocation(add(alice.did))).toBe(minted);
    expect(charge).toHaveBeenCalledTimes(1);
    authority.forget([cid]);
    expect(await ucan.mintInvocation(add(alice.did))).not.toBe(minted);
    expect(charge).toHaveBeenCalledTimes(2);
  });
});

describe('DelegatedAuthority.recordUse', () => {
  const use = {
    owner: 'did:key:zAlice',
    cid: 'one',
    purpose: 'services',
    plugin: 'notes',
  } as const;
  const spyOnSaved = () => vi.spyOn(store.delegations, 'recordPlugins').mockResolvedValue();

  it('stores the last use of each delegation and purpose a minute after the first', () => {
    vi.useFakeTimers({ now: 5_000, toFake: ['Date', 'setTimeout', 'clearTimeout'] });
    const saved = spyOnSaved();
    authority.recordUse(use);
    vi.advanceTimersByTime(59_000);
    const uses = [
      { ...use, plugin: 'maps' },
      { ...use, purpose: 'schedule' as const },
      { ...use, cid: 'two' },
    ];
    for (const each of uses) authority.recordUse(each);
    vi.advanceTimersByTime(999);
    expect(saved).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1);
    expect(saved.mock.calls).toEqual([[uses.map((each) => ({ ...each, at: 64_000 }))]]);
    vi.advanceTimersByTime(120_000);
    expect(saved).toHaveBeenCalledTimes(1);
  });

  it('stores a use after saveUses a minute later, not with the timer of an earlier one', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const saved = spyOnSaved();
    authority.recordUse(use);
    vi.advanceTimersByTime(30_000);
    await authority.saveUses();
    authority.recordUse({ ...use, cid: 'two' });
    vi.advanceTimersByTime(59_999);
    expect(saved).toHaveBeenCalledTimes(1);
    vi.advanceTimersByTime(1);
    expect(saved.mock.calls.map(([uses]) => uses.map(({ cid }) => cid))).toEqual([
      ['one'],
      ['two'],
    ]);
  });

  it('stores a thousand uses at once', () => {
    const saved = spyOnSaved();
    for (let n = 0; n < 999; n++) authority.recordUse({ ...use, cid: `${n}` });
    authority.recordUse({ ...use, cid: '0' });
    expect(saved).not.toHaveBeenCalled();
    authority.recordUse({ ...use, cid: '999' });
    expect(saved.mock.calls.map(([uses]) => uses.length)).toEqual([1_000]);
  });

  it('loses the uses, and no more, while the store accepts no writes', async () => {
    const lines: unknown[] = [];
    const own = openAuthority({ log: (line) => void lines.push(JSON.parse(line)) });
    const saved = spyOnSaved().mockRejectedValueOnce(new Error('disk full'));
    own.recordUse(use);
    await own.saveUses();
    expect(lines).toMatchObject([{ err: { message: 'disk full' } }]);
    await own.saveUses();
    expect(saved.mock.calls.map(([uses]) => uses.length)).toEqual([1, 0]);
  });
});
