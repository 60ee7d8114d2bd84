import type { Logger } from 'pino';
import type { Database } from './database.js';
import { isStoreError } from './store-errors.js';

/** On a full disk a small write may succeed while larger ones fail: an outage is over once none has failed for a while. */
const QUIET_MS = 5_000;

/** Logs an outage of the store once when it begins and once when it ends, however many requests fail in between. */
export class StoreOutage {
  private readonly logger: Pick<Logger, 'error' | 'info'>;
  private outage: { readonly since: number; lastFailure: number; failures: number } | undefined;

  constructor(logger: Pick<Logger, 'error' | 'info'>) {
    this.logger = logger;
  }

  failed(error: unknown): void {
    if (!isStoreError(error)) return;
    if (this.outage) {
      this.outage.failures += 1;
      this.outage.lastFailure = performance.now();
      return;
    }
    const now = performance.now();
    this.outage = { since: now, lastFailure: now, failures: 1 };
    this.logger.error(
      { err: error },
      'the store is unavailable; the next line about it follows when it is back',
    );
  }

  succeeded(): void {
    if (!this.outage || performance.now() - this.outage.lastFailure < QUIET_MS) return;
    const { since, lastFailure, failures } = this.outage;
    this.outage = undefined;
    const seconds = Math.round((lastFailure - since) / 100) / 10;
    this.logger.info({ failures, seconds }, 'the store is available again');
  }

  /** Observes every write; reads alone cannot show that an outage is over. */
  watch(database: Database): Database {
    return {
      ...database,
      write: (unit) => this.observe(database.write(unit)),
      writeFor: (owner, unit) => this.observe(database.writeFor(owner, unit)),
    };
  }

  private async observe<T>(writing: Promise<T>): Promise<T> {
    try {
      const value = await writing;
      this.succeeded();
      return value;
    } catch (error) {
      this.failed(error);
      throw error;
    }
  }
}
