import { RUN_ABILITY } from '@sibyl/protocol';
import {
  createDidKeyResolver,
  createRevocationSet,
  createVerifier,
  type DidResolver,
  generateSigner,
  mintDelegation,
  type Signer,
  systemClock,
} from '@sibyl/ucan';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { useStore } from '../../test/support/test-database.js';
import { RunGrants } from './run-grants.js';

const oracle = generateSigner();
const resource = 'sibyl:schedules';
const inSeconds = (seconds: number) => systemClock() + seconds;

describe('RunGrants', () => {
  const test = useStore('sqlite', { clock: () => Date.now() });
  afterEach(() => void vi.useRealTimers());

  interface Choice {
    readonly audience?: string;
    readonly resolver?: DidResolver;
    readonly isStoreAway?: boolean;
  }

  function open(choice: Choice = {}) {
    const { audience = oracle.did, resolver = createDidKeyResolver(), isStoreAway } = choice;
    const revocations = createRevocationSet({ clock: systemClock });
    const away = { isRevoked: () => Promise.reject(new Error('connect ECONNREFUSED')) };
    const verifier = createVerifier({
      audience,
      resolver,
      revocations: isStoreAway ? away : revocations,
    });
    const excluded = new Set<string>();
    const allowList = {
      findExclusion: async (did: string) =>
        excluded.has(did) ? ('caller_blocked' as const) : undefined,
    };
    const { grants } = test.store;
    return {
      runGrants: new RunGrants({ verifier, grants, allowList }),
      grants,
      excluded,
      revoke: (cid: string) => revocations.add(cid, inSeconds(3600)),
    };
  }

  function mint(signer: Signer, fields: Partial<Parameters<typeof mintDelegation>[0]> = {}) {
    const { ok, error } = mintDelegation({
      signer,
      audience: oracle.did,
      capabilities: [{ can: RUN_ABILITY, with: resource }],
      expiration: inSeconds(3600),
      nonce: `${Math.random()}`,
      ...fields,
    });
    if (error) throw new Error(error.detail);
    return ok.token;
  }

  /** A user with a stored delegation. */
  async function grant(fields: Parameters<typeof mint>[1] = {}) {
    const opened = open();
    const user = generateSigner();
    const owner = user.did;
    const token = mint(user, fields);
    const stored = await opened.runGrants.store({ owner, token, resource });
    return { ...opened, user, owner, token, stored };
  }

  it('store keeps a delegation of the owner, which assertValid accepts', async () => {
    const { runGrants, owner, stored } = await grant();
    expect(stored).toEqual({ cid: expect.any(String), expiration: expect.any(Number) });
    const valid = await runGrants.assertValid({ owner, cid: stored.cid, resource });
    expect(valid).toMatchObject({ cid: stored.cid, did: owner });
  });

  it('store accepts a delegation without an expiry', async () => {
    const { stored } = await grant({ expiration: null });
    expect(stored).toEqual({ cid: expect.any(String) });
  });

  it('store refuses the delegation of another user', async () => {
    const { runGrants, grants, token } = await grant();
    const owner = generateSigner().did;
    await expect(runGrants.store({ owner, token, resource })).rejects.toMatchObject({
      code: 'foreign_delegation',
    });
    expect(await grants.list({ owner, purpose: 'schedule' })).toEqual([]);
  });

  it.each<[string, Parameters<typeof mint>[1], RegExp]>([
    ['is expired', { expiration: inSeconds(-120) }, /expired: sign a new one/],
    ['is for another oracle', { audience: generateSigner().did }, /another audience/],
    [
      'has another resource',
      { capabilities: [{ can: RUN_ABILITY, with: 'sibyl:other' }] },
      /exactly one capability, .+ at sibyl:schedules/,
    ],
    [
      'has another ability',
      { capabilities: [{ can: 'sibyl/other', with: resource }] },
      /exactly one capability/,
    ],
    [
      'has caveats',
      { capabilities: [{ can: RUN_ABILITY, with: resource, nb: { a: 1 } }] },
      /exactly one capability/,
    ],
  ])('store refuses a delegation that %s, and says why', async (_, fields, message) => {
    const { runGrants, grants } = open();
    const user = generateSigner();
    const wanted = { owner: user.did, token: mint(user, fields), resource };
    await expect(runGrants.store(wanted)).rejects.toMatchObject({
      code: 'invalid_delegation',
      message: expect.stringMatching(message),
    });
    expect(await grants.list({ owner: user.did, purpose: 'schedule' })).toEqual([]);
  });

  it('store records until when and for what the delegation is', async () => {
    const { runGrants, owner, user, stored } = await grant();
    const { cid } = await runGrants.store({
      owner,
      token: mint(user, { expiration: null }),
      resource,
    });
    const facts = {
      owner,
      purpose: 'schedule',
      audience: oracle.did,
      capabilities: [{ can: RUN_ABILITY, with: resource }],
    };
    const records = await test.store.delegations.list(owner);
    expect(records.toSorted((a, b) => Number(a.cid === cid) - Number(b.cid === cid))).toMatchObject(
      [
        { ...facts, cid: stored.cid, expiresAt: stored.expiration },
        { ...facts, cid, expiresAt: null },
      ],
    );
  });

  it('store refuses a revoked delegation, and one whose expiry is in milliseconds', async () => {
    const { runGrants, user, owner, token, stored, revoke } = await grant();
    const refuse = (other: string, message: RegExp) =>
      expect(runGrants.store({ owner, token: other, resource })).rejects.toMatchObject({
        code: 'invalid_delegation',
        message: expect.stringMatching(message),
      });
    revoke(stored.cid);
    await refuse(token, /was revoked: sign a new one/);
    await refuse(mint(user, { expiration: 4_000_000_000_000 }), /after the year 9999/);
  });

  it('store refuses the delegation of another user before it looks up who that is', async () => {
    const asked: string[] = [];
    const resolve = async (did: string) => {
      asked.push(did);
      return createDidKeyResolver().resolve(did);
    };
    const { runGrants } = open({ resolver: { resolve } });
    const [user, stranger] = [generateSigner(), generateSigner()];
    const foreign = { owner: user.did, token: mint(stranger), resource };
    await expect(runGrants.store(foreign)).rejects.toMatchObject({ code: 'foreign_delegation' });
    expect(asked).toEqual([]);
    await runGrants.store({ owner: user.did, token: mint(user), resource });
    expect(asked).toEqual([user.did]);
  });

  it('store refuses more than 200 delegations of one user', async () => {
    const { runGrants, grants, owner, user } = await grant();
    const facts = { owner, audience: oracle.did, expiresAt: null, capabilities: [] };
    for (let n = 1; n < 200; n++)
      await grants.put({ ...facts, purpose: 'schedule', cid: `${n}`, raw: 'token' });
    await expect(runGrants.store({ owner, token: mint(user), resource })).rejects.toMatchObject({
      code: 'invalid_delegation',
      message: expect.stringContaining('too many'),
    });
    expect(await grants.list({ owner, purpose: 'schedule' })).toHaveLength(200);
  });

  it('store and assertValid say that they cannot know while the store is away', async () => {
    const { owner, token, stored } = await grant();
    const { runGrants } = open({ isStoreAway: true });
    const unknown = { code: 'store_unavailable' };
    await expect(runGrants.store({ owner, token, resource })).rejects.toMatchObject(unknown);
    const permission = { owner, cid: stored.cid, resource };
    await expect(runGrants.assertValid(permission)).rejects.toMatchObject(unknown);
    await expect(runGrants.hold(permission, () => {})).rejects.toMatchObject(unknown);
  });

  it('assertValid refuses delegations that have expired, or are for a former DID of the oracle', async () => {
    const { runGrants, owner, stored } = await grant();
    const permission = { owner, cid: stored.cid, resource };
    const moved = open({ audience: generateSigner().did }).runGrants;
    const ended = (message: RegExp) => ({
      code: 'delegation_ended',
      message: expect.stringMatching(message),
    });
    await expect(moved.assertValid(permission)).rejects.toMatchObject(ended(/cannot be verified/));
    vi.useFakeTimers({ now: Date.now() + 3_601_000, toFake: ['Date'] });
    await expect(runGrants.assertValid(permission)).rejects.toMatchObject(ended(/has expired/));
  });

  it('store refuses what is not a token', async () => {
    const wanted = { owner: oracle.did, token: 'none', resource };
    await expect(open().runGrants.store(wanted)).rejects.toMatchObject({
      code: 'invalid_delegation',
    });
  });

  it('assertValid refuses the delegation of another user that was written into the table', async () => {
    const { runGrants, grants, owner } = await grant();
    const other = await grant();
    const facts = { owner, audience: oracle.did, expiresAt: null, capabilities: [] };
    const { cid } = other.stored;
    await grants.put({ ...facts, purpose: 'schedule', cid, raw: other.token });
    await expect(runGrants.assertValid({ owner, cid, resource })).rejects.toMatchObject({
      code: 'delegation_ended',
      message: expect.stringContaining('something else'),
    });
  });

  const caveats = { messageHash: 'a', triggerHash: 'b' };
  const withCaveats = (nb: object, at = resource) => ({
    capabilities: [{ can: RUN_ABILITY, with: at, nb: nb as never }],
  });

  it('store and assertValid accept exactly the caveats of the permission', async () => {
    const { runGrants } = open();
    const user = generateSigner();
    const wanted = { owner: user.did, resource, caveats };
    const token = mint(user, withCaveats(caveats));
    const { cid } = await runGrants.store({ ...wanted, token });
    await expect(runGrants.assertValid({ ...wanted, cid })).resolves.toMatchObject({ cid });
    for (const other of [{ ...caveats, messageHash: 'c' }, { messageHash: 'a' }, {}, undefined])
      await expect(runGrants.assertValid({ ...wanted, cid, caveats: other })).rejects.toMatchObject(
        { code: 'delegation_ended' },
      );
  });

  it.each<[string, Parameters<typeof mint>[1]]>([
    ['other caveats', withCaveats({ ...caveats, messageHash: 'c' })],
    ['more caveats', withCaveats({ ...caveats, model: 'x' })],
    ['fewer caveats', withCaveats({ messageHash: 'a' })],
    ['no caveats', {}],
    ['a wider resource', withCaveats(caveats, 'sibyl:*')],
  ])('store refuses a delegation with %s than those of the permission', async (_, fields) => {
    const { runGrants } = open();
    const user = generateSigner();
    const wanted = { owner: user.did, token: mint(user, fields), resource, caveats };
    await expect(runGrants.store(wanted)).rejects.toMatchObject({
      code: 'invalid_delegation',
      message: expect.stringContaining(JSON.stringify(caveats)),
    });
  });

  it('assertValid refuses what was removed, revoked or is another user’s or for another resource', async () => {
    const { runGrants, owner, stored, revoke } = await grant();
    const { cid } = stored;
    const stranger = generateSigner().did;
    const refuse = (permission: Parameters<typeof runGrants.assertValid>[0], message: RegExp) =>
      expect(runGrants.assertValid(permission)).rejects.toMatchObject({
        code: 'delegation_ended',
        message: expect.stringMatching(message),
      });
    await refuse({ owner: stranger, cid, resource }, /revoked or removed/);
    await refuse({ owner, cid, resource: 'sibyl:other' }, /something else/);
    revoke(cid);
    await refuse({ owner, cid, resource }, /was revoked/);
    await runGrants.remove({ owner: stranger, cid });
    await refuse({ owner, cid, resource }, /was revoked/);
    await runGrants.remove({ owner, cid });
    await refuse({ owner, cid, resource }, /revoked or removed/);
  });

  it('assertValid refuses a user who is blocked', async () => {
    const { runGrants, owner, stored, excluded } = await grant();
    excluded.add(owner);
    await expect(runGrants.assertValid({ owner, cid: stored.cid, resource })).rejects.toMatchObject(
      { code: 'caller_blocked' },
    );
  });

  it('hold calls back when the delegation expires, unless it is stopped', async () => {
    vi.useFakeTimers({ toFake: ['Date', 'setTimeout', 'clearTimeout'] });
    const { runGrants, owner, stored } = await grant();
    const permission = { owner, cid: stored.cid, resource };
    const ended: string[] = [];
    const stop = await runGrants.hold(permission, () => ended.push('stopped'));
    await runGrants.hold(permission, ({ code, message }) => ended.push(`${code}: ${message}`));
    stop();
    vi.advanceTimersByTime(3_590_000);
    expect(ended).toEqual([]);
    vi.advanceTimersByTime(10_000);
    expect(ended).toEqual(['delegation_ended: The delegation has expired']);
  });

  const LONGEST_MS = 2 ** 31 - 1;

  /** Holds a delegation that expires in so many milliseconds. */
  async function holdFor(leftMs: number) {
    // Expiries are whole seconds.
    const expiration = inSeconds(Math.ceil(leftMs / 1000));
    const now = expiration * 1000 - leftMs;
    vi.useFakeTimers({ now, toFake: ['Date', 'setTimeout', 'clearTimeout'] });
    const { runGrants, owner, stored } = await grant({ expiration });
    const onExpired = vi.fn();
    await runGrants.hold({ owner, cid: stored.cid, resource }, onExpired);
    return onExpired;
  }

  it('hold calls back after the longest time of a timer', async () => {
    const onExpired = await holdFor(LONGEST_MS);
    vi.advanceTimersByTime(LONGEST_MS - 1);
    expect(onExpired).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1);
    expect(onExpired).toHaveBeenCalledTimes(1);
  });

  it.each([LONGEST_MS + 1, 100 * 86_400_000])(
    'hold never calls back for a delegation that lasts %i ms, longer than a timer',
    async (leftMs) => {
      const onExpired = await holdFor(leftMs);
      vi.advanceTimersByTime(1_000);
      expect(onExpired).not.toHaveBeenCalled();
    },
  );
});
