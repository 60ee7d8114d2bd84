import { OracleError } from '@sibyl/protocol';
import {
  type Holder,
  type JsonScan,
  LruMap,
  RateLimiter,
  type RateVerdict,
  settlesWithin,
  textBytes,
  toAddressKey,
  toShareKey,
} from '@sibyl/server-kit';
import type { Charge, Settle, VerificationCost } from '@sibyl/ucan';
import type { HostBus } from '../bus/host-bus.js';
import type { Metrics } from '../observability/metrics.js';

/** How many callers behind one address may use their full limit: identities cost nothing. */
const CALLERS_PER_ADDRESS = 10;

/** Requests for DID documents on behalf of one address. */
const LOOKUPS = { perMinute: 300, atOnce: 10 } as const;
/** The same, on behalf of all addresses. */
const LOOKUPS_AT_ONCE = 50;
/** Reading this many characters of a token takes about as long as verifying a signature. */
const CHARACTERS_PER_UNIT = 1024;
/** Reading each of these takes about as long as a small request. */
const PER_REQUEST = { bytes: 64 * 1024, values: 8000, members: 1000 } as const;
/** What new work of a new caller costs its address more than another request. */
const WORK_COST = 9;
/** One new caller starts at most this part of what the new callers of its address may start together. */
const WORK_SHARE = 1 / 5;
/** A session and its first message, also with a low limit. */
const MIN_WORK = 2;
/** Storing this much of a file takes about as long as a small request. */
const FILE_BYTES_PER_REQUEST = 1024 ** 2;
/** One body costs at most this part of a limit, so that large ones pass a low limit too. */
const BODY_SHARE = 1 / 4;

interface RateLimitsOptions {
  readonly perCaller: number;
  readonly anonymous: number;
  readonly metrics: Metrics;
  readonly holders: Holders;
  /** To the hosts that share the limits, if there can be any. */
  readonly bus?: HostBus | undefined;
  /** Called with a caller that has reached its limit. */
  readonly onLimited?: ((did: string) => void) | undefined;
}

/** What was received as JSON. */
export interface BodySize extends Pick<JsonScan, 'values' | 'members'> {
  readonly bytes: number;
}

/** Receives the RateLimit headers; sockets have none. */
export interface HeaderSink {
  setHeader(name: string, value: number): unknown;
}

const noHeaders: HeaderSink = { setHeader: () => undefined };

/** The cost of a verification that is about to begin. */
export interface Reservation {
  /** In plain tokens. */
  readonly cost: number;
  /** Whether a failure is already paid for. */
  readonly isPaid: boolean;
  readonly settle: Settle;
}

/** Limits unauthenticated requests by address, authenticated ones by caller, on all hosts together. */
export class RateLimits {
  readonly holders: Holders;
  private readonly metrics: Metrics;
  private readonly perMinute: Readonly<Record<'anonymous' | 'caller' | 'address', number>>;
  private readonly anonymous: SharedLimiter;
  private readonly callers: SharedLimiter;
  /** New work of each new caller. */
  private readonly work: SharedLimiter;
  private readonly addresses: SharedLimiter;
  private readonly lookups: SharedLimiter;
  private readonly openLookups = new OpenLookups();
  private readonly onLimited: RateLimitsOptions['onLimited'];

  constructor({ perCaller, anonymous, metrics, holders, bus, onLimited }: RateLimitsOptions) {
    this.holders = holders;
    this.onLimited = onLimited;
    this.metrics = metrics;
    this.perMinute = { anonymous, caller: perCaller, address: perCaller * CALLERS_PER_ADDRESS };
    const exchange = bus && new LimitExchange(bus);
    const createLimiter = (kind: string, perMinute: number) =>
      exchange?.createLimiter(kind, perMinute) ?? new SharedLimiter(perMinute);
    this.anonymous = createLimiter('anonymous', anonymous);
    this.callers = createLimiter('caller', perCaller);
    const workOfAddress = this.perMinute.address / (WORK_COST + 1);
    const workOfCaller = Math.max(MIN_WORK, Math.floor(workOfAddress * WORK_SHARE));
    this.work = createLimiter('work', workOfCaller);
    this.addresses = createLimiter('address', this.perMinute.address);
    this.lookups = createLimiter('lookups', LOOKUPS.perMinute);
  }

  /** Counts an unauthenticated request; throws if its address has reached the limit. */
  takeAnonymous(address: string | undefined, headers = noHeaders): void {
    this.enforce('anonymous', this.anonymous.take(toAddressKey(address)), headers);
  }

  /** Throws if the address cannot pay for this work. */
  checkAffordable(address: string | undefined, work: VerificationCost, headers = noHeaders): void {
    const key = toAddressKey(address);
    // The caller would be rejected after the verification, known or not, so skip it.
    const cost = Math.min(measureCost(work), this.perMinute.address);
    const known = this.addresses.peek(toShareKey({ address: key, isKnown: true }), cost);
    if (!known.allowed) this.refuse('address', this.addresses.peek(key, cost), headers);
    const advance = measureAdvance(work, this.perMinute.anonymous);
    this.refuse('anonymous', this.anonymous.peek(key, advance), headers);
    this.refuse('lookups', this.lookups.peek(key, work.lookups), headers);
  }

  /**
   * Takes the cost of a verification from its address before the work begins, all of it or nothing. A plain token
   * costs nothing in advance: its address pays only if it is invalid, so that valid callers do not suffer from others
   * at their address. Lookups cost nothing in advance for the same reason: they have a separate limit.
   */
  reserve(address: string | undefined, work: VerificationCost, headers = noHeaders): Reservation {
    this.checkAffordable(address, work, headers);
    const key = toAddressKey(address);
    const { lookups } = work;
    const advance = measureAdvance(work, this.perMinute.anonymous);
    const close = lookups > 0 ? this.openLookup(key) : () => undefined;
    this.anonymous.take(key, advance);
    this.lookups.take(key, lookups);
    const settle = (isProven: boolean) => {
      close();
      if (!isProven) return;
      this.anonymous.refund(key, advance);
      this.lookups.refund(key, lookups);
    };
    return { cost: measureCost(work), isPaid: advance > 0, settle };
  }

  private openLookup(key: string): () => void {
    const limit = this.openLookups.findReachedLimit(key);
    if (limit === undefined) return this.openLookups.open(key);
    this.metrics.count('sibyl_rate_limited_total', { kind: 'lookups' });
    throw new OracleError(limit === 'host' ? 'verification_busy' : 'rate_limited', {
      retryAfterSeconds: 3,
    });
  }

  /**
   * Counts an authenticated request, by the cost of its verification. A caller beyond its own limit takes nothing
   * from the other callers of its address, and new callers take nothing from known ones.
   */
  async takeCaller(holder: Holder, headers = noHeaders, cost = 1): Promise<void> {
    const { anonymous, caller, address: everyone } = this.perMinute;
    const { owner: did, address } = holder;
    const callerVerdict = this.callers.peek(did, Math.min(cost, caller));
    // An expensive token whose caller is rejected costs as much as an invalid one.
    if (!callerVerdict.allowed) {
      this.anonymous.take(address, Math.min(cost - 1, anonymous));
      this.onLimited?.(did);
    }
    this.refuse('caller', callerVerdict, headers);
    const share = toShareKey(holder);
    this.enforce('address', this.addresses.take(share, Math.min(cost, everyone)), headers);
    this.enforce('caller', this.callers.take(did, Math.min(cost, caller)), headers);
  }

  /**
   * Counts what makes the host write and call models as further requests of the address of a new caller: its new callers
   * together could keep the host busy with requests that are each within their limit. Beyond its own part, a caller takes
   * nothing from them.
   */
  takeWork(holder: Holder, headers = noHeaders): void {
    if (holder.isKnown) return;
    const key = toShareKey(holder);
    const verdict = this.work.peek(holder.owner);
    // The request was counted before it was known what it wants.
    if (!verdict.allowed) this.addresses.refund(key, 1);
    // The headers say what the caller has left, except in a refusal.
    this.refuse('caller', verdict, headers);
    const cost = Math.min(WORK_COST, this.perMinute.address);
    this.refuse('address', this.addresses.take(key, cost), headers);
    this.work.take(holder.owner);
  }

  /** Counts a large body as further requests, before it is parsed; without a caller, of its address. */
  takeBody(
    { bytes, values, members }: BodySize,
    {
      caller,
      ip,
    }: {
      readonly caller?: { readonly holder: Holder } | undefined;
      readonly ip?: string | undefined;
    },
    headers = noHeaders,
  ): void {
    const work =
      bytes / PER_REQUEST.bytes + values / PER_REQUEST.values + members / PER_REQUEST.members;
    const requests = Math.floor(work);
    if (requests === 0) return;
    if (caller) return void this.takeShare(requests, caller.holder, headers);
    const cost = Math.min(requests, Math.floor(this.perMinute.anonymous * BODY_SHARE));
    this.enforce('anonymous', this.anonymous.take(toAddressKey(ip), cost), headers);
  }

  /** Counts a file as further requests, before it is stored. */
  takeFile(bytes: number, holder: Holder, headers = noHeaders): void {
    this.takeShare(Math.floor(bytes / FILE_BYTES_PER_REQUEST), holder, headers);
  }

  /** What one request costs more than a plain one; at most a part of the limit. */
  private takeShare(requests: number, holder: Holder, headers: HeaderSink): void {
    const cost = Math.min(requests, Math.floor(this.perMinute.caller * BODY_SHARE));
    this.refuse('caller', this.callers.peek(holder.owner, cost), headers);
    this.enforce('address', this.addresses.take(toShareKey(holder), cost), headers);
    this.enforce('caller', this.callers.take(holder.owner, cost), headers);
  }

  /** Charges an authenticated caller for verifying further tokens. */
  chargeFor(holder: Holder): Charge {
    const { caller } = this.perMinute;
    const { owner: did, address } = holder;
    return (work) => {
      try {
        // The request itself has been counted as one.
        const extra = Math.min(measureCost(work), caller) - 1;
        this.refuse('caller', this.callers.peek(did, extra), noHeaders);
        const { settle } = this.reserve(address, work);
        this.callers.take(did, extra);
        this.addresses.take(toShareKey(holder), extra);
        return settle;
      } catch {
        // Already counted; the verifier reports that the cost was rejected.
        return undefined;
      }
    };
  }

  /** As `enforce`, but sets no headers if the request is allowed. */
  private refuse(kind: string, verdict: RateVerdict, headers: HeaderSink): void {
    if (!verdict.allowed) this.enforce(kind, verdict, headers);
  }

  private enforce(kind: string, verdict: RateVerdict, headers: HeaderSink): void {
    headers.setHeader('RateLimit-Limit', verdict.limit);
    headers.setHeader('RateLimit-Remaining', verdict.remaining);
    headers.setHeader('RateLimit-Reset', verdict.resetSeconds);
    if (verdict.allowed) return;
    this.metrics.count('sibyl_rate_limited_total', { kind });
    throw new OracleError('rate_limited', { retryAfterSeconds: verdict.resetSeconds });
  }
}

/** How many plain tokens could be verified instead. */
function measureCost({ signatures, lookups, characters }: VerificationCost): number {
  return Math.max(1, signatures + lookups + Math.floor(characters / CHARACTERS_PER_UNIT));
}

/** What an address pays before the work: nothing for a plain token. */
function measureAdvance(work: VerificationCost, limit: number): number {
  const computing = measureCost({ ...work, lookups: 0 });
  return computing > 1 ? Math.min(computing, limit) : 0;
}

/** Lookups in progress, by address; at most `LOOKUPS_AT_ONCE` entries. */
class OpenLookups {
  private readonly counts = new Map<string, number>();
  private total = 0;

  findReachedLimit(key: string): 'address' | 'host' | undefined {
    if ((this.counts.get(key) ?? 0) >= LOOKUPS.atOnce) return 'address';
    return this.total >= LOOKUPS_AT_ONCE ? 'host' : undefined;
  }

  open(key: string): () => void {
    this.add(key, 1);
    return () => this.add(key, -1);
  }

  private add(key: string, change: 1 | -1): void {
    const count = (this.counts.get(key) ?? 0) + change;
    this.total += change;
    if (count > 0) this.counts.set(key, count);
    else this.counts.delete(key);
  }
}

/** A limit that counts what all hosts have allowed. */
class SharedLimiter {
  private readonly limiter = new RateLimiter();

  constructor(
    private readonly perMinute: number,
    /** Reports to the other hosts, if there are any. */
    private readonly record?: (key: string, cost: number) => void,
  ) {}

  take(key: string, cost = 1): RateVerdict {
    const verdict = this.limiter.take(key, this.perMinute, cost);
    if (verdict.allowed) this.record?.(key, cost);
    return verdict;
  }

  refund(key: string, cost: number): void {
    this.limiter.refund(key, this.perMinute, cost);
    this.record?.(key, -cost);
  }

  /** What `take` would answer, without taking anything. */
  peek(key: string, cost = 1): RateVerdict {
    return this.limiter.peek(key, this.perMinute, cost);
  }

  /** Applies what another host has taken or refunded. */
  apply(key: string, cost: number): void {
    if (cost > 0) this.limiter.spend(key, this.perMinute, cost);
    else this.limiter.refund(key, this.perMinute, -cost);
  }
}

/** How long a host may collect what it has counted; arrives at the others well within 250 ms. */
const COLLECT_MS = 100;
/** So many keys are sent at once, since strangers choose how many there are. */
const MAX_COLLECTED = 200;

/** Sends what this host has counted to the others, and counts what they send. */
class LimitExchange {
  private readonly bus: HostBus;
  private readonly limiters = new Map<string, SharedLimiter>();
  /** By kind and key, since the last message. */
  private readonly collected = new Map<string, Map<string, number>>();
  private size = 0;
  private timer: NodeJS.Timeout | undefined;

  constructor(bus: HostBus) {
    this.bus = bus;
    bus.on('limits', (counts) => {
      for (const [kind, entries] of Object.entries(counts))
        for (const [key, cost] of entries) this.limiters.get(kind)?.apply(key, cost);
    });
  }

  /** Creates a limiter; hosts share those of the same kind. */
  createLimiter(kind: string, perMinute: number): SharedLimiter {
    const limiter = new SharedLimiter(perMinute, (key, cost) => this.collect(kind, key, cost));
    this.limiters.set(kind, limiter);
    return limiter;
  }

  private collect(kind: string, key: string, cost: number): void {
    if (cost === 0) return;
    const counts = this.collected.get(kind) ?? new Map<string, number>();
    if (!counts.has(key)) this.size += 1;
    this.collected.set(kind, counts.set(key, (counts.get(key) ?? 0) + cost));
    if (this.size >= MAX_COLLECTED) this.send();
    else this.timer ??= setTimeout(() => this.send(), COLLECT_MS).unref();
  }

  private send(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.size = 0;
    const counts = [...this.collected].map(([kind, entries]) => [kind, [...entries]] as const);
    this.collected.clear();
    this.bus.send('others', 'limits', Object.fromEntries(counts));
  }
}

/** Long enough that identities are not made for an attack and kept until then. */
export const KNOWN_AFTER_MS = 60 * 60 * 1000;
/** Until a new user is looked up again. */
const FRESH_MS = 10 * 60 * 1000;
/** A store that does not answer delays a request no longer: its user counts as new. */
const LOOKUP_MS = 250;
/** About 20,000 users. */
const MAX_BYTES = 8 * 1024 * 1024;
/** Users of one kind that were not seen at an address, such as those of a chat, share one. */
const METHOD = /^did:[^:]+/;
/** Their users authenticate themselves; those of other methods may be created elsewhere, in any number. */
const OWN_KEYS = /^did:(key|web|ixo):/;

interface HoldersDeps {
  /** Whether a turn of the user ended well before this time, in milliseconds. */
  readonly hasFinishedTurn: (owner: string, before: number) => Promise<boolean>;
  readonly now: () => number;
}

interface Seen {
  /** Undefined for users that were not seen at an address. */
  readonly address: string | undefined;
  readonly isKnown: boolean;
  /** When it was looked up, on the monotonic clock. */
  readonly at: number;
}

/**
 * Where users come from, and whether they are known: what all limits are shared by. A user is known once a turn has ended
 * well more than an hour ago. An import cannot add such turns.
 */
export class Holders {
  private readonly users = new LruMap<string, Seen>({
    maxBytes: MAX_BYTES,
    measure: ({ address = '' }, did) => textBytes(did) + textBytes(address) + 40,
  });

  /** Addresses where known users were seen. */
  private readonly knownAddresses = new LruMap<string, true>({
    maxBytes: MAX_BYTES / 8,
    measure: (_, address) => textBytes(address),
  });

  constructor(private readonly deps: HoldersDeps) {}

  /** Whether a known user was seen at an address. */
  hasKnown(address: string): boolean {
    return this.knownAddresses.get(address) !== undefined;
  }

  /** Asks the store once for a known user, and every ten minutes for a new one. `address` is where the user is now. */
  async find(owner: string, address?: string): Promise<Holder> {
    const seen = this.users.get(owner);
    const isFresh = seen && (seen.isKnown || performance.now() - seen.at < FRESH_MS);
    const isKnown = isFresh ? seen.isKnown : await this.lookUp(owner, address ?? seen?.address);
    if (isFresh && address !== undefined && address !== seen.address)
      this.users.set(owner, { ...seen, address });
    if (isKnown && address !== undefined) this.knownAddresses.set(address, true);
    return { owner, address: address ?? seen?.address ?? toUnseenAddress(owner, isKnown), isKnown };
  }

  private async lookUp(owner: string, address: string | undefined): Promise<boolean> {
    let isKnown = false;
    const { hasFinishedTurn, now } = this.deps;
    const lookup = hasFinishedTurn(owner, now() - KNOWN_AFTER_MS).then(
      (found) => {
        isKnown = found;
        this.users.set(owner, { address, isKnown, at: performance.now() });
      },
      // A store that fails is reported by what needs it.
      () => undefined,
    );
    await settlesWithin(LOOKUP_MS, lookup);
    return isKnown;
  }
}

/** Known users do not suffer from others that were not seen since the host started either. */
function toUnseenAddress(owner: string, isKnown: boolean): string {
  if (isKnown && OWN_KEYS.test(owner)) return owner;
  return METHOD.exec(owner)?.[0] ?? owner;
}
