import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { engines, newOwner, useStore } from '../../test/support/test-database.js';
import { type HostBus, MemoryHostBus } from '../bus/host-bus.js';
import { Metrics } from '../observability/metrics.js';
import { Holders, KNOWN_AFTER_MS, RateLimits } from './rate-limits.js';

const address = '192.0.2.1';
const elsewhere = '192.0.2.2';
const plain = { signatures: 1, lookups: 0, characters: 0 };
const chain = { signatures: 5, lookups: 0, characters: 0 };
const lookup = { signatures: 1, lookups: 1, characters: 0 };
const alice = { did: 'did:key:zAlice' };
const bob = { did: 'did:key:zBob' };
const at = ({ did: owner }: { readonly did: string }, from: string, isKnown = false) => ({
  owner,
  address: from,
  isKnown,
});

const holders = new Holders({ hasFinishedTurn: async () => false, now: Date.now });
const createBus = (): HostBus => new MemoryHostBus('own', pino({ level: 'silent' }));

/** Limits of 10 per minute. */
function openLimits({ bus = createBus(), perCaller = 10, anonymous = 10, isReported = true } = {}) {
  const metrics = new Metrics();
  const limited: string[] = [];
  const onLimited = isReported ? (did: string) => void limited.push(did) : undefined;
  const limits = new RateLimits({ perCaller, anonymous, metrics, holders, bus, onLimited });
  const countLimited = async (kind: string) => {
    const line = (await metrics.print()).match(
      new RegExp(`^sibyl_rate_limited_total\\{kind="${kind}"\\} (\\d+)$`, 'm'),
    );
    return Number(line?.[1] ?? 0);
  };
  return { limits, limited, countLimited };
}

function createSink() {
  const headers = new Map<string, number>();
  const sink = { setHeader: (name: string, value: number) => headers.set(name, value) };
  return { sink, read: () => Object.fromEntries(headers) };
}

/** How often something can be done until it is refused. */
function countAllowed(attempt: () => unknown): number {
  for (let count = 0; ; count++)
    try {
      attempt();
    } catch {
      return count;
    }
}

async function countServed(attempt: () => Promise<void>): Promise<number> {
  for (let count = 0; ; count++)
    try {
      await attempt();
    } catch {
      return count;
    }
}

// Without refilling.
beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }));
afterEach(() => void vi.useRealTimers());

describe('RateLimits.takeBody', () => {
  const KB = 1024;

  const none = { bytes: 0, values: 0, members: 0 };

  it('counts each 64 KiB as a request, of the caller and its address', () => {
    const { limits } = openLimits({ perCaller: 100 });
    const { sink, read } = createSink();
    limits.takeBody(
      { ...none, bytes: 64 * KB - 1 },
      { caller: { holder: at(alice, address) } },
      sink,
    );
    expect(read()).toEqual({});
    limits.takeBody(
      { ...none, bytes: 3 * 64 * KB },
      { caller: { holder: at(alice, address) } },
      sink,
    );
    expect(read()).toMatchObject({ 'RateLimit-Limit': 100, 'RateLimit-Remaining': 97 });
    limits.takeBody({ ...none, bytes: 3 * 64 * KB }, { ip: address }, sink);
    expect(read()).toMatchObject({ 'RateLimit-Limit': 10, 'RateLimit-Remaining': 8 });
  });

  it('counts 8,000 values and 1,000 members of objects as a request too', () => {
    const { limits } = openLimits({ perCaller: 100 });
    const { sink, read } = createSink();
    const take = (size: object) =>
      limits.takeBody({ ...none, ...size }, { caller: { holder: at(alice, address) } }, sink);
    take({ values: 7999 });
    take({ members: 999 });
    expect(read()).toEqual({});
    take({ values: 8000 });
    expect(read()).toMatchObject({ 'RateLimit-Remaining': 99 });
    take({ members: 20_000 });
    expect(read()).toMatchObject({ 'RateLimit-Remaining': 79 });
    take({ bytes: 32 * KB, values: 2000, members: 250 });
    expect(read()).toMatchObject({ 'RateLimit-Remaining': 78 });
  });

  it('takes at most a quarter of the limit, and refuses a caller beyond it without cost for others', async () => {
    const { limits, countLimited } = openLimits({ perCaller: 100 });
    const send = (caller: typeof alice) =>
      limits.takeBody(
        { ...none, bytes: 1024 * 1024 * KB },
        { caller: { holder: at(caller, address) } },
      );
    expect(countAllowed(() => send(alice))).toBe(4);
    expect(await countLimited('caller')).toBe(1);
    for (let i = 0; i < 100; i++) expect(() => send(alice)).toThrow('Too many requests');
    expect(countAllowed(() => send(bob))).toBe(4);
  });
});

describe('RateLimits.takeAnonymous', () => {
  it('allows each address the limit, and says how much is left and when to retry', async () => {
    const { limits, countLimited } = openLimits();
    const headers = new Map<string, number>();
    const sink = { setHeader: (name: string, value: number) => headers.set(name, value) };
    limits.takeAnonymous(address, sink);
    expect(Object.fromEntries(headers)).toEqual({
      'RateLimit-Limit': 10,
      'RateLimit-Remaining': 9,
      'RateLimit-Reset': 6,
    });
    expect(countAllowed(() => limits.takeAnonymous(address))).toBe(9);
    expect(await countLimited('anonymous')).toBe(1);
    expect(() => limits.takeAnonymous(address, sink)).toThrow(
      expect.objectContaining({ code: 'rate_limited', retryAfterSeconds: 6 }),
    );
    expect(headers.get('RateLimit-Remaining')).toBe(0);
    expect(countAllowed(() => limits.takeAnonymous(elsewhere))).toBe(10);
    vi.advanceTimersByTime(6_000);
    expect(countAllowed(() => limits.takeAnonymous(address))).toBe(1);
  });
});

describe('RateLimits.takeCaller of a known caller', () => {
  it('does not count against new callers of the address, nor they against it', async () => {
    const { limits } = openLimits();
    for (let i = 0; i < 200; i++)
      await limits.takeCaller(at({ did: `did:key:z${i}` }, address)).catch(() => undefined);
    await expect(limits.takeCaller(at(alice, address))).rejects.toMatchObject({
      code: 'rate_limited',
    });
    const known = at(bob, address, true);
    expect(await countServed(() => limits.takeCaller(known))).toBe(10);
  });
});

describe('RateLimits.takeWork', () => {
  it('counts as nine requests of an address for its new callers together, and nothing for known ones', async () => {
    const { limits } = openLimits();
    let callers = 0;
    const work = () => limits.takeWork(at({ did: `did:key:z${callers++}` }, address));
    expect(countAllowed(work)).toBe(11);
    for (let i = 0; i < 100; i++) limits.takeWork(at(bob, address, true));
    limits.takeWork(at(alice, elsewhere));
    expect(await countServed(() => limits.takeCaller(at(bob, address, true)))).toBe(10);
  });

  it('lets one new caller start a fifth of it, and refuses the rest without taking from its address', async () => {
    const { limits } = openLimits();
    const work = async (did: string) => {
      await limits.takeCaller(at({ did }, address));
      limits.takeWork(at({ did }, address));
    };
    expect(await countServed(() => work('did:key:zAlice'))).toBe(2);
    let callers = 0;
    expect(await countServed(() => work(`did:key:z${callers++}`))).toBe(8);
  });
});

describe('RateLimits.takeFile', () => {
  it('counts each megabyte as a request of the caller and its address, at most a quarter of the limit', () => {
    const { limits } = openLimits({ perCaller: 40 });
    const file =
      (bytes: number, did = 'did:key:zAlice') =>
      () =>
        limits.takeFile(bytes, at({ did }, address));
    limits.takeFile(1024 ** 2 - 1, at(alice, address));
    expect(countAllowed(file(2 * 1024 ** 2))).toBe(20);
    expect(countAllowed(file(1024 ** 4, 'did:key:zBob'))).toBe(4);
    let callers = 0;
    expect(countAllowed(() => file(1024 ** 4, `did:key:z${callers++}`)())).toBe(32);
  });
});

describe('RateLimits.takeCaller', () => {
  it('allows each caller the limit, and reports who reached it', async () => {
    const { limits, limited, countLimited } = openLimits();
    expect(await countServed(() => limits.takeCaller(at(alice, address)))).toBe(10);
    expect(limited).toEqual([alice.did]);
    expect(await countLimited('caller')).toBe(1);
    expect(await countServed(() => limits.takeCaller(at(bob, address)))).toBe(10);
    await expect(limits.takeCaller(at(alice, elsewhere))).rejects.toMatchObject({
      code: 'rate_limited',
    });
  });

  it('throws the same without onLimited', async () => {
    const { limits } = openLimits({ isReported: false });
    await countServed(() => limits.takeCaller(at(alice, address)));
    await expect(limits.takeCaller(at(alice, address))).rejects.toMatchObject({
      code: 'rate_limited',
    });
  });

  it('allows an address ten times the limit of a caller', async () => {
    const { limits, countLimited } = openLimits();
    let callers = 0;
    const askAsAnother = () => limits.takeCaller(at({ did: `did:key:z${callers++}` }, address));
    expect(await countServed(askAsAnother)).toBe(100);
    expect(await countLimited('address')).toBe(1);
    await limits.takeCaller(at(alice, elsewhere));
  });

  it('sets the headers of the caller, not those of its address', async () => {
    const { limits } = openLimits();
    const { sink, read } = createSink();
    await limits.takeCaller(at(alice, address), sink, 4);
    expect(read()).toMatchObject({ 'RateLimit-Limit': 10, 'RateLimit-Remaining': 6 });
    await expect(limits.takeCaller(at(alice, address), sink, 7)).rejects.toMatchObject({
      code: 'rate_limited',
      retryAfterSeconds: 6,
    });
    expect(read()).toEqual({
      'RateLimit-Limit': 10,
      'RateLimit-Remaining': 6,
      'RateLimit-Reset': 6,
    });
  });

  it('takes nothing from a caller whose address has reached its limit', async () => {
    const { limits, limited } = openLimits({ perCaller: 2 });
    for (let i = 0; i < 20; i++) await limits.takeCaller(at({ did: `did:key:z${i}` }, address));
    await expect(limits.takeCaller(at(alice, address))).rejects.toMatchObject({
      code: 'rate_limited',
    });
    expect(limited).toEqual([]);
    expect(await countServed(() => limits.takeCaller(at(alice, elsewhere)))).toBe(2);
  });

  it('takes a very expensive token of a caller beyond its limit from the whole address', async () => {
    const { limits } = openLimits();
    await countServed(() => limits.takeCaller(at(alice, address)));
    await expect(limits.takeCaller(at(alice, address), undefined, 1_000)).rejects.toThrow();
    expect(countAllowed(() => limits.takeAnonymous(address))).toBe(0);
  });

  it('counts by the cost, which never exceeds the limit', async () => {
    const { limits } = openLimits();
    await limits.takeCaller(at(alice, address), undefined, 7);
    expect(await countServed(() => limits.takeCaller(at(alice, address)))).toBe(3);
    await limits.takeCaller(at(bob, elsewhere), undefined, 1_000);
    await expect(limits.takeCaller(at(bob, elsewhere))).rejects.toThrow('Too many requests');
  });

  it('takes nothing from the address for a caller beyond its limit, except for expensive tokens', async () => {
    const { limits } = openLimits();
    await countServed(() => limits.takeCaller(at(alice, address)));
    for (let i = 0; i < 100; i++)
      await limits.takeCaller(at(alice, address)).catch(() => undefined);
    await limits.takeCaller(at(bob, address));
    await expect(limits.takeCaller(at(alice, address), undefined, 5)).rejects.toThrow();
    expect(countAllowed(() => limits.takeAnonymous(address))).toBe(6);
  });

  it('bounds the expensive tokens of a caller beyond its limit', async () => {
    const { limits } = openLimits();
    const ask = async () => {
      const { cost, settle } = limits.reserve(address, chain);
      settle(true);
      await limits.takeCaller(at(alice, address), undefined, cost);
    };
    let served = 0;
    for (let i = 0; i < 50; i++)
      await ask().then(
        () => served++,
        () => undefined,
      );
    expect(served).toBe(2);
    // The work is rejected before it begins; a plain token of another caller at the address is not.
    expect(() => limits.reserve(address, chain)).toThrow('Too many requests');
    expect(() => limits.reserve(address, plain)).not.toThrow();
    await limits.takeCaller(at(bob, address));
  });
});

describe('RateLimits.checkAffordable', () => {
  it('takes nothing and sets no headers for work that the address can pay for', () => {
    const { limits } = openLimits();
    const { sink, read } = createSink();
    for (let i = 0; i < 20; i++)
      limits.checkAffordable(address, { signatures: 10, lookups: 300, characters: 0 }, sink);
    expect(read()).toEqual({});
    expect(countAllowed(() => limits.takeAnonymous(address))).toBe(10);
  });

  it('throws and sets headers for work that it cannot pay for', async () => {
    const { limits, countLimited } = openLimits();
    const { sink, read } = createSink();
    limits.reserve(address, { ...chain, signatures: 7 });
    limits.checkAffordable(address, { ...chain, signatures: 3 }, sink);
    expect(() => limits.checkAffordable(address, { ...chain, signatures: 4 }, sink)).toThrow(
      expect.objectContaining({ code: 'rate_limited', retryAfterSeconds: 6 }),
    );
    expect(read()).toMatchObject({ 'RateLimit-Limit': 10, 'RateLimit-Remaining': 3 });
    expect(() => limits.checkAffordable(elsewhere, { ...lookup, lookups: 301 }, sink)).toThrow();
    expect(read()).toMatchObject({ 'RateLimit-Limit': 300, 'RateLimit-Remaining': 300 });
    expect([await countLimited('anonymous'), await countLimited('lookups')]).toEqual([1, 1]);
  });
});

describe('RateLimits.reserve', () => {
  it('takes nothing in advance for a plain token', () => {
    const { limits } = openLimits();
    expect(limits.reserve(address, plain)).toMatchObject({ cost: 1, isPaid: false });
    expect(limits.reserve(address, { ...plain, signatures: 0 })).toMatchObject({ cost: 1 });
    expect(countAllowed(() => limits.takeAnonymous(address))).toBe(10);
  });

  it.each([
    ['signatures', chain, 5],
    ['characters', { ...plain, characters: 3 * 1024 }, 4],
    ['more than the limit', { ...chain, signatures: 50 }, 10],
  ])('takes %s in advance, and refunds them for a valid token', (_, work, advance) => {
    const { limits } = openLimits();
    const valid = limits.reserve(address, work);
    expect(valid.isPaid).toBe(true);
    const left = () => countAllowed(() => limits.takeAnonymous(address));
    valid.settle(true);
    limits.reserve(address, work).settle(false);
    expect(left()).toBe(10 - advance);
    expect(left()).toBe(0);
  });

  it('refuses what the address cannot pay for, and takes nothing then', async () => {
    const { limits, countLimited } = openLimits();
    limits.reserve(address, { ...chain, signatures: 8 });
    expect(() => limits.reserve(address, { ...chain, signatures: 3 })).toThrow('Too many requests');
    expect(await countLimited('anonymous')).toBe(1);
    expect(countAllowed(() => limits.takeAnonymous(address))).toBe(2);
    expect(() => limits.reserve(elsewhere, chain)).not.toThrow();
  });

  it('refuses work for an address whose callers have used its limit', async () => {
    const { limits, countLimited } = openLimits({ perCaller: 1 });
    for (let i = 0; i < 8; i++) await limits.takeCaller(at({ did: `did:key:z${i}` }, address));
    expect(() => limits.reserve(address, chain)).not.toThrow();
    for (let i = 0; i < 10; i++)
      await limits.takeCaller(at({ did: `did:key:zKnown${i}` }, address, true));
    expect(() => limits.reserve(address, chain)).toThrow('Too many req');
    expect(await countLimited('address')).toBe(1);
    expect(() => limits.reserve(address, plain)).not.toThrow();
  });

  it('allows 300 lookups per minute that find no valid token, for each address', async () => {
    const { limits, countLimited } = openLimits();
    for (let i = 0; i < 500; i++) limits.reserve(address, lookup).settle(true);
    expect(countAllowed(() => limits.reserve(address, lookup).settle(false))).toBe(300);
    expect(await countLimited('lookups')).toBe(1);
    expect(limits.reserve(elsewhere, lookup)).toMatchObject({ cost: 2, isPaid: false });
    limits.reserve(address, plain);
  });

  it('allows an address 10 lookups at once', async () => {
    const { limits, countLimited } = openLimits();
    const open = Array.from({ length: 10 }, () => limits.reserve(address, lookup));
    expect(() => limits.reserve(address, lookup)).toThrow(
      expect.objectContaining({ code: 'rate_limited', retryAfterSeconds: 3 }),
    );
    expect(await countLimited('lookups')).toBe(1);
    limits.reserve(address, plain);
    limits.reserve(elsewhere, lookup);
    open[0]?.settle(true);
    open[1]?.settle(false);
    limits.reserve(address, lookup);
    limits.reserve(address, lookup);
    expect(() => limits.reserve(address, lookup)).toThrow();
  });

  it('allows an address 10 lookups at once after others have ended', () => {
    const { limits } = openLimits();
    for (let i = 0; i < 3; i++) limits.reserve(address, lookup).settle(true);
    expect(countAllowed(() => limits.reserve(address, lookup))).toBe(10);
  });

  it('takes nothing for a lookup that is refused because of others in progress', () => {
    const { limits } = openLimits();
    const expensive = { ...chain, lookups: 1 };
    const open = Array.from({ length: 10 }, () => limits.reserve(address, lookup));
    expect(() => limits.reserve(address, expensive)).toThrow();
    for (const { settle } of open) settle(true);
    expect(countAllowed(() => limits.takeAnonymous(address))).toBe(10);
  });

  it('allows all addresses 50 lookups at once', () => {
    const { limits } = openLimits();
    const open = Array.from({ length: 50 }, (_, n) => limits.reserve(`192.0.2.${n}`, lookup));
    expect(() => limits.reserve('198.51.100.1', lookup)).toThrow(
      expect.objectContaining({ code: 'verification_busy', retryAfterSeconds: 3 }),
    );
    open[0]?.settle(false);
    limits.reserve('198.51.100.1', lookup);
    expect(() => limits.reserve('198.51.100.2', lookup)).toThrow();
  });
});

describe('RateLimits.chargeFor', () => {
  it('charges caller and address for all but the one that the request counts as', async () => {
    const { limits } = openLimits();
    const charge = limits.chargeFor(at(alice, address));
    charge(plain)?.(true);
    charge(chain)?.(true);
    expect(await countServed(() => limits.takeCaller(at(alice, elsewhere)))).toBe(6);
    let callers = 0;
    const askAsAnother = () => limits.takeCaller(at({ did: `did:key:z${callers++}` }, address));
    expect(await countServed(askAsAnother)).toBe(96);
  });

  it('returns nothing if the caller or its address cannot pay, and takes nothing then', async () => {
    const { limits } = openLimits();
    await limits.takeCaller(at(alice, address), undefined, 7);
    expect(limits.chargeFor(at(alice, address))(chain)).toBeUndefined();
    expect(await countServed(() => limits.takeCaller(at(alice, address)))).toBe(3);
    limits.reserve(elsewhere, { ...chain, signatures: 8 });
    expect(limits.chargeFor(at(bob, elsewhere))(chain)).toBeUndefined();
    expect(await countServed(() => limits.takeCaller(at(bob, elsewhere)))).toBe(10);
  });

  it('counts a charge that is refused, by the limit that was reached', async () => {
    const { limits, countLimited } = openLimits();
    await limits.takeCaller(at(alice, address), undefined, 10);
    limits.chargeFor(at(alice, address))(chain);
    expect([await countLimited('caller'), await countLimited('anonymous')]).toEqual([1, 0]);
    limits.reserve(elsewhere, { ...chain, signatures: 8 });
    limits.chargeFor(at(bob, elsewhere))(chain);
    expect([await countLimited('caller'), await countLimited('anonymous')]).toEqual([1, 1]);
  });

  it('charges a token beyond the limit of a caller as much as the limit', async () => {
    const { limits } = openLimits();
    await limits.takeCaller(at(alice, address));
    const charge = limits.chargeFor(at(alice, address));
    expect(charge({ ...chain, signatures: 50 })).toBeDefined();
    expect(await countServed(() => limits.takeCaller(at(alice, address)))).toBe(0);
  });

  it('refuses lookups beyond those in progress, and takes nothing from the caller then', async () => {
    const { limits } = openLimits();
    for (let i = 0; i < 10; i++) limits.reserve(address, lookup);
    expect(limits.chargeFor(at(alice, address))(lookup)).toBeUndefined();
    expect(await countServed(() => limits.takeCaller(at(alice, address)))).toBe(10);
  });

  it('keeps the advance of an address if the token is invalid', () => {
    const { limits } = openLimits();
    limits.chargeFor(at(alice, address))(chain)?.(false);
    expect(countAllowed(() => limits.takeAnonymous(address))).toBe(5);
  });
});

describe('RateLimits of several hosts', () => {
  /** Two hosts that hear each other. */
  function openTwo() {
    const buses = [createBus(), createBus()] as const;
    const sent: unknown[] = [];
    const connect = (own: HostBus, other: HostBus): HostBus => ({
      hostId: own.hostId,
      isShared: true,
      figures: own.figures,
      room: () => own.room(),
      on: (topic, listener) => own.on(topic, listener),
      onMissed: () => () => {},
      send: (_, topic, payload) => {
        sent.push(payload);
        return other.send(other.hostId, topic, payload);
      },
    });
    const [first, second] = buses;
    const one = openLimits({ bus: connect(first, second) });
    const two = openLimits({ bus: connect(second, first) });
    return { one: one.limits, two: two.limits, sent };
  }

  it.each<[string, (limits: RateLimits) => unknown]>([
    ['requests of addresses', (limits) => limits.takeAnonymous(address)],
    ['requests of callers', (limits) => limits.takeCaller(at(alice, address))],
    ['lookups', (limits) => limits.reserve(address, { ...lookup, lookups: 30 }).settle(false)],
  ])('count the %s of each other', async (_, use) => {
    const { one, two, sent } = openTwo();
    const attempt = async (limits: RateLimits) => void (await use(limits));
    await attempt(two);
    expect(await countServed(() => attempt(one))).toBe(10);
    await vi.waitUntil(() => sent.length >= 2);
    await Promise.resolve();
    expect(await countServed(() => attempt(two))).toBe(0);
  });

  it('send what they have counted by kind of limit', async () => {
    const { one, sent } = openTwo();
    await one.takeCaller(at(alice, address), undefined, 3);
    one.takeAnonymous(elsewhere);
    one.reserve(address, lookup);
    await vi.waitUntil(() => sent.length > 0);
    expect(sent).toEqual([
      {
        address: [[address, 3]],
        caller: [[alice.did, 3]],
        anonymous: [[elsewhere, 1]],
        lookups: [[address, 1]],
      },
    ]);
  });

  it('give back to each other what is refunded', async () => {
    const { one, two, sent } = openTwo();
    const { settle } = one.reserve(address, chain);
    await vi.waitUntil(() => sent.length === 1);
    expect(() => two.reserve(address, { ...chain, signatures: 6 })).toThrow();
    settle(true);
    await vi.waitUntil(() => sent.length === 2);
    await Promise.resolve();
    expect(() => two.reserve(address, { ...chain, signatures: 10 })).not.toThrow();
  });

  it('send at most 200 keys at once, and nothing if nothing was counted', async () => {
    const { one, two, sent } = openTwo();
    for (let i = 0; i < 200; i++) one.takeAnonymous(`198.51.100.${i}`);
    expect(sent).toHaveLength(1);
    expect(sent[0]).toMatchObject({ anonymous: expect.objectContaining({ length: 200 }) });
    two.reserve(address, plain);
    one.takeAnonymous(address);
    one.takeAnonymous(address);
    await vi.waitUntil(() => sent.length > 1);
    expect(sent.slice(1)).toEqual([{ anonymous: [[address, 2]] }]);
  });
});

const owner = 'did:key:zAlice';

describe('Holders.find', () => {
  function open(isKnown = false) {
    const state = { isKnown, lookups: 0 };
    const hasFinishedTurn = async () => {
      state.lookups += 1;
      return state.isKnown;
    };
    return { state, holders: new Holders({ hasFinishedTurn, now: () => 0 }) };
  }

  beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }));
  afterEach(() => void vi.useRealTimers());

  it('asks once for a known user, and every ten minutes for a new one', async () => {
    const { state, holders } = open();
    for (let i = 0; i < 5; i++) expect((await holders.find(owner)).isKnown).toBe(false);
    expect(state.lookups).toBe(1);
    state.isKnown = true;
    vi.advanceTimersByTime(9 * 60_000);
    expect((await holders.find(owner)).isKnown).toBe(false);
    vi.advanceTimersByTime(60_000);
    for (let i = 0; i < 5; i++) expect((await holders.find(owner)).isKnown).toBe(true);
    vi.advanceTimersByTime(86_400_000);
    await holders.find(owner);
    expect(state.lookups).toBe(2);
  });

  it('knows where a user was last, and groups users that were not seen by their method', async () => {
    const { holders } = open();
    expect((await holders.find('did:slack:T1:U1')).address).toBe('did:slack');
    expect((await holders.find(owner)).address).toBe('did:key');
    expect((await holders.find(owner, '192.0.2.1')).address).toBe('192.0.2.1');
    expect((await holders.find(owner)).address).toBe('192.0.2.1');
    expect((await holders.find(owner, '192.0.2.2')).address).toBe('192.0.2.2');
    expect((await holders.find(owner)).address).toBe('192.0.2.2');
  });

  it('gives each known user with an own key an address that was not seen', async () => {
    const { holders } = open(true);
    expect((await holders.find(owner)).address).toBe(owner);
    expect((await holders.find('did:slack:T1:U1')).address).toBe('did:slack');
    await holders.find(owner, '192.0.2.1');
    expect((await holders.find(owner)).address).toBe('192.0.2.1');
  });

  it('counts a user as new while the store fails or does not answer, and asks again', async () => {
    vi.useRealTimers();
    const answers = [Promise.reject(new Error('away')), new Promise<boolean>(() => {})];
    const hasFinishedTurn = () => answers.shift() ?? Promise.resolve(true);
    const holders = new Holders({ hasFinishedTurn, now: () => 0 });
    expect((await holders.find(owner)).isKnown).toBe(false);
    expect((await holders.find(owner)).isKnown).toBe(false);
    expect((await holders.find(owner)).isKnown).toBe(true);
  });
});

describe.each(engines)('UsageStore.hasFinishedTurn on %s', (engine) => {
  const test = useStore(engine);
  const now = Date.UTC(2026, 0, 2, 0, 30);
  const before = now - KNOWN_AFTER_MS;
  const has = (user: string) => test.store.usage.hasFinishedTurn(user, before);

  it.each([
    [true, 'finished', before - 1],
    [false, 'finished', before + 1],
    [false, 'interrupted', before - 1],
    [false, 'running', before - 1],
  ])('is %s for a turn that is %s at %i', async (expected, status, time) => {
    const user = newOwner();
    const hex = time.toString(16).padStart(12, '0');
    const id = `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-000000000000`;
    const { imports } = test.store;
    const times = { created_at: time, last_updated_at: time };
    const place = { oracle_did: 'did:o', room_id: 'r', active_branch: 0, last_branch: 0 };
    const session = { id: 's', title: 't', last_turn: 1, ...place };
    await imports.insert(user, 'sessions', [{ owner: user, ...session, ...times, last_seq: 1 }]);
    const run = { id, session_id: 's', turn: 1, branch: 0, request_id: 'r', status, attempt: 1 };
    const tokens = { last_seq: 0, input_tokens: 5, output_tokens: 6, cached_tokens: 0 };
    const changed = { created_at: time, updated_at: time };
    await imports.insert(user, 'runs', [{ owner: user, ...run, ...tokens, ...changed }]);
    expect(await has(user)).toBe(expected);
  });

  it('finds turns of deleted sessions on earlier days', async () => {
    const [alice, bob] = [newOwner(), newOwner()];
    const tokens = { input_tokens: 0, output_tokens: 0, cached_tokens: 0 };
    const ended = { session_id: 's', model: '', turns: 1, ...tokens };
    const { imports } = test.store;
    await imports.insert(alice, 'usage_days', [{ owner: alice, day: '2025-12-31', ...ended }]);
    await imports.insert(bob, 'usage_days', [{ owner: bob, day: '2026-01-01', ...ended }]);
    expect(await has(alice)).toBe(true);
    expect(await has(bob)).toBe(false);
  });
});
