import { withTimeout } from '@sibyl/server-kit';
import type { Logger } from 'pino';

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
