import { INVITATION_MAX_DAYS } from '@sibyl/protocol';
import { generateSigner, mintDelegation, type Signer, systemClock } from '@sibyl/ucan';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { newOwner, useStore } from '../../test/support/test-database.js';
import {
  type HostAddress,
  type HostTopic,
  type HostTopics,
  MemoryHostBus,
} from '../bus/host-bus.js';
import type { Store } from '../store/store.js';
import { CallerAllowList, InvitationReader, mintInvitation } from './caller-allow-list.js';

const logger = pino({ level: 'silent' });
const listed = 'did:key:zListed';

/** The bus of one of several hosts. */
class LinkedBus extends MemoryHostBus {
  readonly others: LinkedBus[] = [];
  readonly sent: unknown[] = [];
  private readonly missed: (() => void)[] = [];

  override send<Topic extends HostTopic>(
    to: HostAddress,
    topic: Topic,
    payload: HostTopics[Topic],
  ): boolean {
    if (to !== 'others') return super.send(to, topic, payload);
    this.sent.push([topic, payload]);
    for (const other of this.others) other.send(other.hostId, topic, payload);
    return true;
  }

  override onMissed(listener: () => void = () => undefined): () => void {
    this.missed.push(listener);
    return () => undefined;
  }

  reconnect(): void {
    for (const listener of this.missed) listener();
  }
}

function openHost(store: Store, bus: LinkedBus, allowed: readonly string[] | undefined) {
  const { callers, blockedUsers: blocked } = store;
  return new CallerAllowList({ listed: allowed, callers, blocked, bus, logger });
}

/** Two hosts on one database, both open to `listed` and to invited callers. */
function openHosts(store: Store, allowed: readonly string[] | undefined = [listed]) {
  const bus = new LinkedBus('one', logger);
  const otherBus = new LinkedBus('two', logger);
  bus.others.push(otherBus);
  otherBus.others.push(bus);
  const here = openHost(store, bus, allowed);
  const there = openHost(store, otherBus, allowed);
  return { here, there, bus, otherBus };
}

async function invite(store: Store): Promise<string> {
  const did = newOwner();
  const invitation = { cid: `invitation of ${did}`, expiration: systemClock() + 3600 };
  expect(await store.callers.redeem(did, invitation)).toBe('redeemed');
  return did;
}

/** Lets messages arrive. */
const deliver = () => new Promise(setImmediate);

describe('CallerAllowList', () => {
  const test = useStore('sqlite');
  beforeEach(() => {
    vi.useFakeTimers({
      toFake: ['performance', 'setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'],
    });
  });
  afterEach(() => {
    vi.restoreAllMocks();
    vi.useRealTimers();
  });

  it('without a list everyone may call, whom it then does not look up', async () => {
    const { callers, blockedUsers: blocked } = test.store;
    const asked = vi.spyOn(callers, 'has');
    const bus = new LinkedBus('one', logger);
    const open = new CallerAllowList({ listed: undefined, callers, blocked, bus, logger });
    expect(await open.findExclusion(newOwner())).toBeUndefined();
    expect(await open.isAllowed(newOwner())).toBe(true);
    await open.assertAllowed(newOwner());
    expect(asked).not.toHaveBeenCalled();
  });

  it('with a list only listed and invited callers may call', async () => {
    const { here } = openHosts(test.store);
    const invited = await invite(test.store);
    const stranger = newOwner();
    for (const did of [listed, invited]) {
      expect(await here.isAllowed(did)).toBe(true);
      await here.assertAllowed(did);
    }
    expect(await here.findExclusion(stranger)).toBe('caller_not_allowed');
    expect(await here.isAllowed(stranger)).toBe(false);
    await expect(here.assertAllowed(stranger)).rejects.toMatchObject({
      code: 'caller_not_allowed',
    });
  });

  it('an empty list admits invited callers only', async () => {
    const { here } = openHosts(test.store, []);
    expect(await here.isAllowed(listed)).toBe(false);
    expect(await here.isAllowed(await invite(test.store))).toBe(true);
  });

  it('a caller who redeems an invitation may call at once after it was refused', async () => {
    const { here } = openHosts(test.store);
    const did = newOwner();
    expect(await here.isAllowed(did)).toBe(false);
    await test.store.callers.redeem(did, { cid: did, expiration: systemClock() + 60 });
    expect(await here.isAllowed(did)).toBe(true);
  });

  it('a removal by another process takes effect after 3 s, which use does not extend', async () => {
    const { here } = openHosts(test.store);
    const did = await invite(test.store);
    expect(await here.isAllowed(did)).toBe(true);
    await test.store.callers.remove(did);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(await here.isAllowed(did)).toBe(true);
    await vi.advanceTimersByTimeAsync(999);
    expect(await here.isAllowed(did)).toBe(true);
    await vi.advanceTimersByTimeAsync(1);
    expect(await here.isAllowed(did)).toBe(false);
  });

  it('remove ends the access of one caller at once on all hosts, and says whether there was one', async () => {
    const { here, there, bus, otherBus } = openHosts(test.store);
    const [did, another] = [await invite(test.store), await invite(test.store)];
    for (const host of [here, there])
      for (const caller of [did, another]) expect(await host.isAllowed(caller)).toBe(true);
    expect(await here.remove(did)).toBe(true);
    await deliver();
    for (const host of [here, there]) {
      expect(await host.findExclusion(did)).toBe('caller_not_allowed');
      expect(await host.isAllowed(another)).toBe(true);
    }
    expect(await here.remove(did)).toBe(false);
    expect(bus.sent).toContainEqual(['caller-removed', { did }]);
    // A host that receives a message does not pass it on.
    expect(otherBus.sent).toEqual([]);
  });

  it('an answer of the store from before a removal is not kept', async () => {
    const { here } = openHosts(test.store);
    const did = await invite(test.store);
    let answer = (_isStored: boolean) => {};
    vi.spyOn(test.store.callers, 'has').mockImplementationOnce(
      () =>
        new Promise((resolve) => {
          answer = resolve;
        }),
    );
    const asked = here.isAllowed(did);
    await deliver();
    await here.remove(did);
    answer(true);
    await asked;
    expect(await here.isAllowed(did)).toBe(false);
  });

  it('setBlocked keeps a caller out at once on all hosts, even a listed one, and stores the reason', async () => {
    const { here, there, bus, otherBus } = openHosts(test.store, [listed, 'did:key:zOther']);
    for (const host of [here, there]) expect(await host.isAllowed(listed)).toBe(true);
    expect(await here.setBlocked(listed, true, 'sends spam')).toBe(true);
    await deliver();
    for (const host of [here, there]) {
      expect(await host.findExclusion(listed)).toBe('caller_blocked');
      await expect(host.assertAllowed(listed)).rejects.toMatchObject({ code: 'caller_blocked' });
      expect(await host.isAllowed('did:key:zOther')).toBe(true);
    }
    expect(await test.store.blockedUsers.list()).toContainEqual(
      expect.objectContaining({ did: listed, note: 'sends spam' }),
    );
    expect(bus.sent).toEqual([['caller-blocked', { did: listed }]]);
    expect(otherBus.sent).toEqual([]);
    expect(await here.setBlocked(listed, true)).toBe(false);
    await here.setBlocked(listed, false);
  });

  it('setBlocked admits a caller again, here at once and on other hosts within 3 s', async () => {
    const { here, there, bus } = openHosts(test.store);
    await here.setBlocked(listed, true);
    await deliver();
    expect(await there.isAllowed(listed)).toBe(false);
    bus.sent.length = 0;
    expect(await here.setBlocked(listed, false)).toBe(true);
    expect(await here.isAllowed(listed)).toBe(true);
    expect(bus.sent).toEqual([]);
    await vi.advanceTimersByTimeAsync(3_000);
    expect(await there.isAllowed(listed)).toBe(true);
    expect(await here.setBlocked(listed, false)).toBe(false);
  });

  it('while the store is away, no caller who may be blocked is admitted, and the error says when to retry', async () => {
    const { here } = openHosts(test.store);
    vi.spyOn(test.store.blockedUsers, 'list').mockRejectedValue(new Error('away'));
    await expect(here.assertAllowed(listed)).rejects.toMatchObject({
      code: 'store_unavailable',
      retryAfterSeconds: 5,
    });
  });

  it('isKnownBlocked answers by what is known while the store is away', async () => {
    const { here, there } = openHosts(test.store);
    const did = newOwner();
    vi.spyOn(test.store.blockedUsers, 'list').mockRejectedValue(new Error('away'));
    expect(await there.isKnownBlocked(did)).toBe(false);
    await here.setBlocked(did, true);
    await deliver();
    expect(await here.isKnownBlocked(did)).toBe(true);
    expect(await there.isKnownBlocked(did)).toBe(true);
  });

  it('start reads who is blocked without requests, until close', async () => {
    const { here } = openHosts(test.store);
    const read = vi.spyOn(test.store.blockedUsers, 'list');
    void here.start();
    await vi.advanceTimersByTimeAsync(10_000);
    await expect.poll(() => read.mock.calls.length).toBeGreaterThan(1);
    here.close();
    await deliver();
    const reads = read.mock.calls.length;
    await vi.advanceTimersByTimeAsync(60_000);
    expect(read).toHaveBeenCalledTimes(reads);
  });

  describe('watch', () => {
    it('reports the removal of an invited caller on all hosts, and of no other caller', async () => {
      const { here, there } = openHosts(test.store);
      const [did, another] = [await invite(test.store), await invite(test.store)];
      const ended: string[] = [];
      here.watch(did, (reason) => ended.push(`here: ${reason}`));
      there.watch(did, (reason) => ended.push(`there: ${reason}`));
      here.watch(another, () => ended.push('another'));
      await here.remove(did);
      await deliver();
      expect(ended).toEqual(['here: caller_not_allowed', 'there: caller_not_allowed']);
    });

    it.each([
      ['listed', [listed], listed],
      ['invited', [listed], undefined],
      ['any', undefined, newOwner()],
    ])('reports the block of a caller on all hosts: %s', async (_, allowed, known) => {
      const { here, there } = openHosts(test.store, allowed);
      const did = known ?? (await invite(test.store));
      const ended: string[] = [];
      here.watch(did, (reason) => ended.push(`here: ${reason}`));
      there.watch(did, (reason) => ended.push(`there: ${reason}`));
      here.watch(newOwner(), () => ended.push('another'));
      await here.setBlocked(did, true);
      await deliver();
      expect(ended).toEqual(['here: caller_blocked', 'there: caller_blocked']);
      await here.setBlocked(did, false);
      expect(ended).toHaveLength(2);
    });

    it('reports nothing after it was stopped', async () => {
      const { here } = openHosts(test.store);
      const did = await invite(test.store);
      const onRemoved = vi.fn();
      here.watch(did, onRemoved)();
      here.watch(listed, onRemoved)();
      await here.remove(did);
      await here.setBlocked(did, true);
      await here.setBlocked(listed, true);
      expect(onRemoved).not.toHaveBeenCalled();
      await here.setBlocked(listed, false);
    });

    it('does not end the access of a listed caller whose invitation is removed', async () => {
      const { here } = openHosts(test.store);
      await test.store.callers.redeem(listed, { cid: 'x', expiration: systemClock() + 60 });
      const onRemoved = vi.fn();
      here.watch(listed, onRemoved);
      await here.remove(listed);
      await vi.advanceTimersByTimeAsync(3_000);
      await deliver();
      expect(onRemoved).not.toHaveBeenCalled();
      expect(await here.isAllowed(listed)).toBe(true);
    });

    it.each([
      ['3 s later', () => vi.advanceTimersByTimeAsync(3_000)],
      ['once it is connected again', async (bus: LinkedBus) => bus.reconnect()],
    ])('finds what another process removed or blocked without a message, %s', async (_, pass) => {
      const { here, bus } = openHosts(test.store);
      const [removed, blocked, kept] = [
        await invite(test.store),
        await invite(test.store),
        await invite(test.store),
      ];
      const ended: string[] = [];
      for (const did of [removed, blocked, kept])
        here.watch(did, (reason) => ended.push(`${did}: ${reason}`));
      await test.store.callers.remove(removed);
      await test.store.blockedUsers.add(blocked);
      await pass(bus);
      await expect
        .poll(() => ended.toSorted())
        .toEqual([`${removed}: caller_not_allowed`, `${blocked}: caller_blocked`].toSorted());
      expect(await here.isAllowed(kept)).toBe(true);
    });
  });
});

describe('InvitationReader', () => {
  const oracle = generateSigner();
  const day = 86_400;
  const capability = { can: 'oracle/invite', with: oracle.did };

  function mint(signer: Signer, fields: Partial<Parameters<typeof mintDelegation>[0]> = {}) {
    const expiration = systemClock() + day;
    const request = { signer, audience: oracle.did, capabilities: [capability], expiration };
    const { ok, error } = mintDelegation({ ...request, ...fields });
    if (error) throw new Error(error.detail);
    return ok.token;
  }
  const refusal = async (token: string, signer = oracle) =>
    (await new InvitationReader(signer).read(token)).error?.code;

  afterEach(() => void vi.useRealTimers());

  it('accepts an invitation of its oracle until it expires, and reading does not use it up', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: 1_800_000_000_999 });
    const { token, expiration } = mintInvitation(oracle, 2);
    expect(expiration).toBe(1_800_000_000 + 2 * day);
    const reader = new InvitationReader(oracle);
    const { ok } = await reader.read(token);
    expect(ok).toMatchObject({ cid: expect.any(String), expiration });
    vi.setSystemTime((expiration - 1) * 1000);
    expect((await reader.read(token)).ok?.cid).toBe(ok?.cid);
    vi.setSystemTime(expiration * 1000);
    expect(await refusal(token)).toBe('expired');
  });

  it('two invitations of the same second are different, so that each can be used', async () => {
    vi.useFakeTimers({ toFake: ['Date'] });
    const reader = new InvitationReader(oracle);
    const [one, two] = [mintInvitation(oracle, 1), mintInvitation(oracle, 1)];
    expect((await reader.read(one.token)).ok?.cid).not.toBe((await reader.read(two.token)).ok?.cid);
  });

  it('accepts the longest time that an operator may choose, and no longer one', async () => {
    vi.useFakeTimers({ toFake: ['Date'] });
    expect(await refusal(mintInvitation(oracle, INVITATION_MAX_DAYS).token)).toBeUndefined();
    const longer = mintInvitation(oracle, INVITATION_MAX_DAYS + 1);
    expect(await refusal(longer.token)).toBe('expiry_too_far');
  });

  it('accepts the invitations of an oracle with a did:web, without looking it up', async () => {
    const { ok: named } = oracle.withDid('did:web:oracle.example');
    if (!named) throw new Error('not a DID');
    expect(await refusal(mintInvitation(named, 1).token, named)).toBeUndefined();
    expect(await refusal(mintInvitation(oracle, 1).token, named)).toBe('wrong_audience');
  });

  it('refuses a did:web invitation that another key has signed', async () => {
    const [own, foreign] = [oracle, generateSigner()].map(
      (signer) => signer.withDid('did:web:oracle.example').ok as Signer,
    ) as [Signer, Signer];
    expect(await refusal(mintInvitation(foreign, 1).token, own)).toBe('signature_invalid');
  });

  it.each<[string, () => string, string]>([
    ['another oracle', () => mintInvitation(generateSigner(), 1).token, 'wrong_audience'],
    ['a user', () => mint(generateSigner()), 'wrong_issuer'],
    [
      'the oracle for another purpose',
      () => mint(oracle, { capabilities: [{ can: 'oracle/run', with: oracle.did }] }),
      'wrong_capability',
    ],
    [
      'the oracle for another resource',
      () => mint(oracle, { capabilities: [{ can: 'oracle/invite', with: 'ixo:oracle' }] }),
      'wrong_capability',
    ],
    [
      'the oracle for another service',
      () => mint(oracle, { audience: generateSigner().did }),
      'wrong_audience',
    ],
    ['the oracle without an expiry', () => mint(oracle, { expiration: null }), 'expiry_missing'],
  ])('refuses a token of %s', async (_, create, code) => {
    expect(await refusal(create())).toBe(code);
  });

  it('mintInvitation throws rather than sign something without a valid expiry', () => {
    expect(() => mintInvitation(oracle, Number.NaN)).toThrow('Cannot sign an invitation');
  });
});
