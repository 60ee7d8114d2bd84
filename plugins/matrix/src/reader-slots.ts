/** How many messages may have their files read at the same time. */
export interface SlotLimits {
  readonly total: number;
  readonly perUser: number;
  /** A homeserver that hangs holds at most these, no matter who names it. */
  readonly perHomeserver: number;
  /** Messages that may wait for a slot; more are refused. */
  readonly waiting: number;
}

/** Who reads, and from where. */
export interface Reader {
  readonly user: string;
  readonly homeserver: string;
}

interface Waiter extends Reader {
  readonly start: () => void;
}

/** Admits readers within all limits; a waiting reader whose user holds the fewest slots goes first. */
export class ReaderSlots {
  private readonly running = new Set<Reader>();
  private readonly waiters = new Set<Waiter>();

  constructor(private readonly limits: SlotLimits) {}

  /** Readers that hold a slot. */
  get active(): number {
    return this.running.size;
  }

  /** Readers that wait for a slot. */
  get waiting(): number {
    return this.waiters.size;
  }

  /** Runs the work once a slot is free. The signal ends the wait; the work has to listen to it itself. */
  async run<T>(reader: Reader, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    // Its own object, since one user may hold several slots.
    const holder = { ...reader };
    await this.acquire(holder, signal);
    try {
      return await work();
    } finally {
      this.running.delete(holder);
      this.startWaiting();
    }
  }

  private async acquire(reader: Reader, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.hasSlot(reader)) return void this.running.add(reader);
    if (this.waiters.size >= this.limits.waiting) throw new Error(BUSY);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const start = () => {
      this.waiters.delete(waiter);
      this.running.add(reader);
      resolve();
    };
    const waiter: Waiter = { ...reader, start };
    const leave = () => {
      // One that was started in the meantime holds a slot, and gives it back like any other.
      if (this.waiters.delete(waiter)) reject(signal.reason);
    };
    this.waiters.add(waiter);
    signal.addEventListener('abort', leave, { once: true });
    await promise.finally(() => signal.removeEventListener('abort', leave));
  }

  private hasSlot({ user, homeserver }: Reader): boolean {
    const { total, perUser, perHomeserver } = this.limits;
    if (this.running.size >= total || this.held({ user }) >= perUser) return false;
    return this.held({ homeserver }) < perHomeserver;
  }

  /** One slot given back may make room under several limits. */
  private startWaiting(): void {
    for (let next = this.nextWaiter(); next; next = this.nextWaiter()) next.start();
  }

  private nextWaiter(): Waiter | undefined {
    let best: { readonly waiter: Waiter; readonly held: number } | undefined;
    for (const waiter of this.waiters) {
      if (!this.hasSlot(waiter)) continue;
      const held = this.held({ user: waiter.user });
      if (!best || held < best.held) best = { waiter, held };
    }
    return best?.waiter;
  }

  private held(by: Partial<Reader>): number {
    const holders = [...this.running];
    return holders.filter(({ user, homeserver }) =>
      by.user === undefined ? homeserver === by.homeserver : user === by.user,
    ).length;
  }
}

const BUSY = 'too many files are being read right now; send it again in a minute';
