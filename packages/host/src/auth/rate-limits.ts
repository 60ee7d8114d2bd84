import { OracleError } from '@sibyl/protocol';
import {
  type Holder,
  type JsonScan,
  type RateVerdict,
  toAddressKey,
  toShareKey,
} from '@sibyl/server-kit';
import type { Charge, Settle, VerificationCost } from '@sibyl/ucan';
import type { HostBus } from '../bus/host-bus.js';
import type { Metrics } from '../observability/metrics.js';
import type { Holders } from './holders.js';
import { LimitExchange, type SharedLimiter } from './shared-limits.js';

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
  /** To the hosts that share the limits. */
  readonly bus: HostBus;
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
    const exchange = new LimitExchange(bus);
    this.anonymous = exchange.createLimiter('anonymous', anonymous);
    this.callers = exchange.createLimiter('caller', perCaller);
    const workOfAddress = this.perMinute.address / (WORK_COST + 1);
    const workOfCaller = Math.max(MIN_WORK, Math.floor(workOfAddress * WORK_SHARE));
    this.work = exchange.createLimiter('work', workOfCaller);
    this.addresses = exchange.createLimiter('address', this.perMinute.address);
    this.lookups = exchange.createLimiter('lookups', LOOKUPS.perMinute);
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
