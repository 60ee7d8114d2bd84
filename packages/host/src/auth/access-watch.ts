import { Listeners, withTimeout } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import type { HostBus } from '../bus/host-bus.js';

/** How long it takes at most to find changes of other processes that no message reported. */
const INTERVAL_MS = 3000;
/** Ids in one query. */
const BATCH = 200;

interface AccessWatchOptions {
  /** Returns those of the given ids that have lost access. */
  readonly findEnded: (ids: readonly string[]) => Promise<readonly string[]>;
  /** Called for each of them. */
  readonly onEnded: (id: string) => void;
  readonly bus: Pick<HostBus, 'onMissed'>;
  readonly logger: Logger;
}

/** Watches the callers or tokens of open sockets and running turns, with few queries even for many. */
export class AccessWatch {
  private readonly options: AccessWatchOptions;
  /** At most as many entries as open sockets and running turns, whose numbers are limited. */
  private readonly listeners = new Listeners<string>();
  private timer: NodeJS.Timeout | undefined;

  constructor(options: AccessWatchOptions) {
    this.options = options;
    options.bus.onMissed(() => void this.check());
  }

  /** Calls back when one of the ids loses access; returns a function that stops watching. */
  watch(ids: readonly string[], onEnded: () => void): () => void {
    const stops: (() => void)[] = [];
    for (const id of ids) stops.push(this.listeners.add(id, onEnded));
    this.arm();
    return () => {
      for (const stop of stops) stop();
    };
  }

  /** Calls the listeners of an id that has lost access. */
  end(id: string): void {
    this.listeners.call(id);
  }

  private arm(): void {
    if (this.listeners.size > 0)
      this.timer ??= setTimeout(() => void this.check(), INTERVAL_MS).unref();
  }

  private async check(): Promise<void> {
    clearTimeout(this.timer);
    const { findEnded, onEnded, logger } = this.options;
    try {
      const ids = this.listeners.list();
      for (let at = 0; at < ids.length; at += BATCH)
        for (const id of await findEnded(ids.slice(at, at + BATCH))) onEnded(id);
    } catch (err) {
      logger.warn(
        { reason: String(err) },
        'cannot check whether sockets and turns have lost access',
      );
    }
    this.timer = undefined;
    this.arm();
  }
}

/** How long a list is used without reading it again: a change by another process takes effect within this time. */
const FRESH_MS = 3_000;
/** The list is read this often without requests too, so that it is recent when the store goes away. */
const REFRESH_MS = 5_000;
/** An older list, which could not be read again, may lack an entry. */
const STALE_MS = 60_000;
const READ_LIMIT = { ms: 1_000, message: 'the store does not answer' };

interface CachedListDeps {
  /** Reads all entries. */
  readonly read: () => Promise<Iterable<string>>;
  readonly logger: Pick<Logger, 'debug'>;
}

/** A short list in the store that this host must know even while the store does not answer. */
export class CachedList {
  private entries: ReadonlySet<string> = new Set();
  /** Entries that were reported while the list was being read. */
  private readonly reported = new Set<string>();
  /** On the monotonic clock, as below. */
  private triedAt = Number.NEGATIVE_INFINITY;
  private readAt = Number.NEGATIVE_INFINITY;
  private reading: Promise<void> | undefined;
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly deps: CachedListDeps) {}

  /** Reads the list, and then regularly. The first read may be slow, since no earlier list could be used instead. */
  async start(): Promise<void> {
    this.timer = setInterval(() => void this.refresh(), REFRESH_MS).unref();
    await this.load(this.deps.read);
  }

  close(): void {
    clearInterval(this.timer);
  }

  /** Whether the list is known well enough to conclude that an entry is not on it. */
  get isRecent(): boolean {
    return performance.now() - this.readAt < STALE_MS;
  }

  /** According to the store, or to what is known of it if it does not answer. */
  async has(entry: string): Promise<boolean> {
    await this.refresh();
    return this.entries.has(entry);
  }

  /** According to what is known, without asking the store. */
  knows(entry: string): boolean {
    return this.entries.has(entry);
  }

  /** Adds an entry that was just stored. */
  add(entry: string): void {
    this.reported.add(entry);
    this.entries = new Set([...this.entries, entry]);
  }

  /** The next question is answered by the store. */
  expire(): void {
    this.triedAt = Number.NEGATIVE_INFINITY;
  }

  private async refresh(): Promise<void> {
    // Read again if it expired while it was read.
    while (this.reading || performance.now() - this.triedAt >= FRESH_MS) {
      await this.load(() => withTimeout(READ_LIMIT, this.deps.read));
    }
  }

  private load(read: CachedListDeps['read']): Promise<void> {
    this.reading ??= this.read(read).finally(() => {
      this.reading = undefined;
    });
    return this.reading;
  }

  private async read(read: CachedListDeps['read']): Promise<void> {
    const since = performance.now();
    this.triedAt = since;
    this.reported.clear();
    try {
      const found = await read();
      this.entries = new Set([...found, ...this.reported]);
      this.readAt = since;
    } catch (error) {
      // Not every request tries again.
      this.deps.logger.debug({ reason: String(error) }, 'a list was not read from the store');
    }
  }
}
