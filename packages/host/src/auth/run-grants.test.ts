import { RUN_ABILITY } from '@sibyl/plugin-kit';
import {
  createDidKeyResolver,
  createRevocationSet,
  createVerifier,
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
  const test = useStore('sqlite');
  afterEach(() => void vi.useRealTimers());

  function open() {
    const revocations = createRevocationSet({ clock: systemClock });
    const resolver = createDidKeyResolver();
    const verifier = createVerifier({ audience: oracle.did, resolver, revocations });
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

  it('store keeps a delegation of the owner, which find returns and assertValid accepts', async () => {
    const { runGrants, owner, stored } = await grant();
    expect(stored).toEqual({ cid: expect.any(String), expiration: expect.any(Number) });
    expect(await runGrants.find({ owner, resource })).toEqual(stored);
    const valid = await runGrants.assertValid({ owner, cid: stored.cid, resource });
    expect(valid).toMatchObject({ cid: stored.cid, did: owner });
  });

  it('store accepts a delegation without an expiry', async () => {
    const { stored } = await grant({ expiration: null });
    expect(stored).toEqual({ cid: expect.any(String) });
  });

  it('store refuses the delegation of another user', async () => {
    const { runGrants, token } = await grant();
    const owner = generateSigner().did;
    await expect(runGrants.store({ owner, token, resource })).rejects.toMatchObject({
      code: 'foreign_delegation',
    });
    expect(await runGrants.find({ owner, resource })).toBeUndefined();
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
    const { runGrants } = open();
    const user = generateSigner();
    const wanted = { owner: user.did, token: mint(user, fields), resource };
    await expect(runGrants.store(wanted)).rejects.toMatchObject({
      code: 'invalid_delegation',
      message: expect.stringMatching(message),
    });
    expect(await runGrants.find(wanted)).toBeUndefined();
  });

  it('store refuses what is not a token', async () => {
    const wanted = { owner: oracle.did, token: 'none', resource };
    await expect(open().runGrants.store(wanted)).rejects.toMatchObject({
      code: 'invalid_delegation',
    });
  });

  it('find passes over delegations that are revoked, for other resources or of other users', async () => {
    const { runGrants, grants, owner, user, stored, revoke } = await grant();
    const other = await grant();
    // As if a stranger had written it into the table.
    const facts = { owner, audience: oracle.did, expiresAt: null, capabilities: [] };
    await grants.put({ ...facts, purpose: 'schedule', cid: other.stored.cid, raw: other.token });
    const elsewhere = mint(user, { capabilities: [{ can: RUN_ABILITY, with: 'sibyl:other' }] });
    await runGrants.store({ owner, token: elsewhere, resource: 'sibyl:other' });
    expect(await runGrants.find({ owner, resource })).toEqual(stored);
    revoke(stored.cid);
    expect(await runGrants.find({ owner, resource })).toBeUndefined();
    await expect(
      runGrants.assertValid({ owner, cid: other.stored.cid, resource }),
    ).rejects.toMatchObject({ code: 'delegation_ended', message: /another use/ });
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
    await refuse({ owner, cid, resource: 'sibyl:other' }, /another use/);
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

  it('hold never calls back for a delegation that lasts longer than a timer', async () => {
    vi.useFakeTimers({ toFake: ['Date', 'setTimeout', 'clearTimeout'] });
    const { runGrants, owner, stored } = await grant({ expiration: inSeconds(100 * 86_400) });
    let isEnded = false;
    await runGrants.hold({ owner, cid: stored.cid, resource }, () => {
      isEnded = true;
    });
    vi.advanceTimersByTime(1_000);
    expect(isEnded).toBe(false);
  });
});
