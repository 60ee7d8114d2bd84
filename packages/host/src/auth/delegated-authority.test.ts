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
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { startUcantoService, type UcantoService } from '../../test/support/ucanto-service.js';
import { MemoryHostBus } from '../bus/host-bus.js';
import { openStore, type Store } from '../store/store.js';
import type { Caller } from './caller.js';
import { DelegatedAuthority, PresentedDelegations } from './delegated-authority.js';

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
  const fetch = createSafeFetch({ allow: ['127.0.0.0/8'] });
  const resolver = createDidResolver({
    methods: { key: createDidKeyResolver(), web: createDidWebResolver({ fetch, allowHttp: true }) },
  });
  authority = new DelegatedAuthority({
    oracleDid: oracle.did,
    verifier: createVerifier({
      audience: oracle.did,
      resolver,
      revocations: { isRevoked: (cid) => store.revocations.has(cid) },
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
    bus: new MemoryHostBus('own', logger),
    logger,
  });
});

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
