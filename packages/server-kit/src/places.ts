import { type ErrorCode, OracleError, type Result } from '@sibyl/protocol';
import { LruMap, textBytes } from '@sibyl/protocol/lru-map';

/** Who wants something that is scarce: an identity, which may cost nothing, and the network address that it comes from. */
export interface Holder {
  /** As `toAddressKey` returns it. */
  readonly address: string;
  readonly owner: string;
  /** Whether the owner was here long before: strangers cannot make many such identities at once. */
  readonly isKnown: boolean;
}

export interface PlacesOptions {
  readonly max: number;
  readonly maxPerOwner?: number;
}

/** Which limit refuses a holder: its own, that of its address, or that of all together. */
export type PlaceLimit = 'owner' | 'address' | 'total';

/** The part that only known owners may take. */
const RESERVED = 1 / 4;
/** Far below the average: where many addresses have one place each, none has few. */
const FEW = 1 / 4;

/**
 * A fixed number of places. An address takes further ones only while it holds less than is still free, so that one alone
 * reaches about half, the next a quarter, and another one always finds room; those of its owners that are not known reach
 * half as much, together. Known and new owners of an address count separately: neither can crowd out the other. Once more
 * than half is taken, each owner may hold fewer. Never waits.
 */
export class Places {
  private readonly max: number;
  private readonly maxPerOwner: number;
  private readonly addresses = new Map<string, number>();
  private readonly owners = new Map<string, number>();
  private taken = 0;

  constructor({ max, maxPerOwner = max }: PlacesOptions) {
    this.max = max;
    this.maxPerOwner = maxPerOwner;
  }

  get size(): number {
    return this.taken;
  }

  /** Takes a place; returns the function that gives it back, which may be called more than once. */
  take(holder: Holder): Result<() => void, PlaceLimit> {
    const error = this.findRefusal(holder);
    return error === undefined ? { ok: this.force(holder) } : { error };
  }

  /** Takes a place even if none is free. */
  force(holder: Holder): () => void {
    const address = toShareKey(holder);
    this.count(address, holder.owner, 1);
    let isTaken = true;
    return () => {
      if (isTaken) this.count(address, holder.owner, -1);
      isTaken = false;
    };
  }

  /** Why a holder gets no place now. */
  findRefusal(holder: Holder): PlaceLimit | undefined {
    const { max, maxPerOwner } = this;
    const free = max - this.taken;
    const room = holder.isKnown ? free : free - Math.floor(max * RESERVED);
    const perOwner = Math.min(maxPerOwner, Math.ceil((maxPerOwner * 2 * free) / max));
    const held = this.owners.get(holder.owner) ?? 0;
    if (held >= maxPerOwner) return 'owner';
    if (room <= 0) return 'total';
    if (held >= perOwner) return 'owner';
    const share = holder.isKnown ? room : room / 2;
    return (this.addresses.get(toShareKey(holder)) ?? 0) < share ? undefined : 'address';
  }

  /** Whether the address of a holder has far fewer places than others have on average. */
  hasFew(holder: Omit<Holder, 'owner'>): boolean {
    const average = this.taken / Math.max(1, this.addresses.size);
    return (this.addresses.get(toShareKey(holder)) ?? 0) + 1 <= average * FEW;
  }

  private count(address: string, owner: string, change: 1 | -1): void {
    this.taken += change;
    add(this.addresses, address, change);
    add(this.owners, owner, change);
  }
}

interface RefusalCodes {
  readonly owner: ErrorCode;
  readonly total: ErrorCode;
}

/** The error for a holder that gets no place. */
export const createRefusal = (
  refusal: PlaceLimit,
  codes: RefusalCodes,
  retryAfterSeconds: number,
): OracleError =>
  new OracleError(refusal === 'address' ? 'address_busy' : codes[refusal], { retryAfterSeconds });

/** What the limits of an address count by: its known owners must not suffer from identities that others make there. */
export const toShareKey = ({ address, isKnown }: Omit<Holder, 'owner'>): string =>
  isKnown ? `${address} known` : address;

function add(counts: Map<string, number>, key: string, change: 1 | -1): void {
  const count = (counts.get(key) ?? 0) + change;
  if (count > 0) counts.set(key, count);
  else counts.delete(key);
}

export interface RoundsOptions {
  /** What is done at the same time. */
  readonly places: number;
  /** How long one works while others wait. */
  readonly sliceMs: number;
}

/** What is doing its work in a round. */
export interface Slice {
  /** Call it wherever the work can pause: once the slice is used up and others wait, it resolves with the next slice. */
  giveWay(): Promise<void>;
}

interface Waiter {
  readonly holder: Holder;
  readonly isSlow: boolean;
  start(): void;
}

/** Addresses and owners to remember. */
const REMEMBERED_BYTES = 1024 * 1024;

/**
 * Work in the background, a fixed number at a time. Next is the address that was served least recently, and of its owners
 * the one that was. Work that takes longer than a slice gives way to others, and one place is left to work that is not
 * known to be slow.
 */
export class Rounds {
  private readonly waiters = new Set<Waiter>();
  private readonly served = new LruMap<string, number>({
    maxBytes: REMEMBERED_BYTES,
    measure: (_, key) => textBytes(key) + 8,
  });
  private rounds = 0;
  private running = 0;
  private slow = 0;

  constructor(private readonly options: RoundsOptions) {}

  get waiting(): number {
    return this.waiters.size;
  }

  /** Does work once it is its turn; the signal ends the wait, and the work has to listen to it itself. */
  async run<T>(
    holder: Holder,
    work: (slice: Slice) => Promise<T>,
    signal?: AbortSignal,
  ): Promise<T> {
    let isSlow = false;
    await this.begin(holder, isSlow, signal);
    let startedAt = performance.now();
    const giveWay = async () => {
      if (this.waiters.size === 0 || performance.now() - startedAt < this.options.sliceMs) return;
      this.end(isSlow);
      isSlow = true;
      await this.begin(holder, isSlow, signal).catch((error) => {
        // Ended below.
        this.enter(isSlow);
        throw error;
      });
      startedAt = performance.now();
    };
    try {
      return await work({ giveWay });
    } finally {
      this.end(isSlow);
    }
  }

  /** Holders in the order in which they are next. */
  sort<T extends Holder>(holders: Iterable<T>): T[] {
    return [...holders].sort((a, b) => this.compare(a, b));
  }

  /** Notes that a holder is served now. */
  record({ address, owner }: Holder): void {
    this.rounds += 1;
    this.served.set(address, this.rounds);
    this.served.set(`owner ${owner}`, this.rounds);
  }

  private compare(a: Holder, b: Holder): number {
    const last = (key: string) => this.served.get(key) ?? 0;
    return last(a.address) - last(b.address) || last(`owner ${a.owner}`) - last(`owner ${b.owner}`);
  }

  private async begin(holder: Holder, isSlow: boolean, signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    if (this.waiters.size === 0 && this.hasPlace(isSlow)) return this.admit(holder, isSlow);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiter = { holder, isSlow, start: resolve };
    const leave = () => {
      // Not if it was started meanwhile: it ends its work itself.
      if (this.waiters.delete(waiter)) reject(signal?.reason);
    };
    this.waiters.add(waiter);
    signal?.addEventListener('abort', leave, { once: true });
    this.startWaiting();
    await promise.finally(() => signal?.removeEventListener('abort', leave));
  }

  private admit(holder: Holder, isSlow: boolean): void {
    this.enter(isSlow);
    this.record(holder);
  }

  private enter(isSlow: boolean): void {
    this.running += 1;
    if (isSlow) this.slow += 1;
  }

  private end(isSlow: boolean): void {
    this.running -= 1;
    if (isSlow) this.slow -= 1;
    this.startWaiting();
  }

  private startWaiting(): void {
    while (this.waiters.size > 0) {
      const next = this.findNext();
      if (!next) return;
      this.waiters.delete(next);
      this.admit(next.holder, next.isSlow);
      next.start();
    }
  }

  private findNext(): Waiter | undefined {
    let best: Waiter | undefined;
    for (const waiter of this.waiters)
      if (this.hasPlace(waiter.isSlow) && (!best || this.compare(waiter.holder, best.holder) < 0))
        best = waiter;
    return best;
  }

  private hasPlace(isSlow: boolean): boolean {
    const { places } = this.options;
    return this.running < places && (!isSlow || this.slow < Math.max(1, places - 1));
  }
}
