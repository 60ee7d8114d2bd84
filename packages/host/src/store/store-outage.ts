import type { Logger } from 'pino';
import type { Database } from './database/database.js';
import { isStoreFault } from './store-fault.js';

/** Logs an outage of the store once when it begins and once when it ends, however many requests fail in between. */
export class StoreOutage {
  private readonly logger: Pick<Logger, 'error' | 'info'>;
  private outage: { readonly since: number; failures: number } | undefined;

  constructor(logger: Pick<Logger, 'error' | 'info'>) {
    this.logger = logger;
  }

  failed(error: unknown): void {
    if (!isStoreFault(error)) return;
    if (this.outage) {
      this.outage.failures += 1;
      return;
    }
    this.outage = { since: performance.now(), failures: 1 };
    this.logger.error(
      { err: error },
      'the store is unavailable; the next line about it follows when it is back',
    );
  }

  succeeded(): void {
    if (!this.outage) return;
    const { since, failures } = this.outage;
    this.outage = undefined;
    const seconds = Math.round((performance.now() - since) / 100) / 10;
    this.logger.info({ failures, seconds }, 'the store is available again');
  }

  /** Observes every write; reads alone cannot show that an outage is over. */
  watch(database: Database): Database {
    return {
      ...database,
      write: async (unit) => {
        try {
          const value = await database.write(unit);
          this.succeeded();
          return value;
        } catch (error) {
          this.failed(error);
          throw error;
        }
      },
    };
  }
}
