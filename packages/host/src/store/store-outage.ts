import type { Logger } from 'pino';
import type { Database } from './database.js';
import { classifyStoreError, type StoreErrorKind } from './store-errors.js';

/** On a full disk a small write may succeed while larger ones fail, so an outage ends after a time without failures. */
const QUIET_MS = 5_000;

/** What operators see of an outage. */
export interface StoreOutageState {
  readonly since: Date;
  readonly failures: number;
  /** What the last error said. */
  readonly reason: string;
}

/** Logs when an outage of the store begins and ends, not every failed request in between. */
export class StoreOutage {
  private readonly logger: Pick<Logger, 'error' | 'info'>;
  private outage:
    | {
        readonly since: number;
        lastFailure: number;
        failures: number;
        reason: string;
        kind: StoreErrorKind;
      }
    | undefined;

  private timer: NodeJS.Timeout | undefined;
  private isClosed = false;
  private probe: () => Promise<void> = async () => {};

  /** Failures since the start. */
  readonly counts: Record<StoreErrorKind, number> = {
    passing: 0,
    full: 0,
    lasting: 0,
  };

  constructor(logger: Pick<Logger, 'error' | 'info'>) {
    this.logger = logger;
  }

  /** The outage that has not ended; undefined if the store is available. */
  get current(): StoreOutageState | undefined {
    if (!this.outage) return undefined;
    const { since, failures, reason } = this.outage;
    return { since: new Date(Date.now() - (performance.now() - since)), failures, reason };
  }

  /** Whether writes fail because the disk is full; smaller ones may succeed. */
  get isFull(): boolean {
    return this.outage?.kind === 'full';
  }

  failed(error: unknown): void {
    const kind = classifyStoreError(error);
    if (!kind) return;
    this.counts[kind] += 1;
    const reason = describeReason(error);
    if (this.outage) {
      this.outage.failures += 1;
      this.outage.reason = reason;
      this.outage.kind = kind;
      this.outage.lastFailure = performance.now();
      return;
    }
    const now = performance.now();
    if (!this.isClosed) this.timer = setInterval(() => void this.probe(), QUIET_MS).unref();
    this.outage = { since: now, lastFailure: now, failures: 1, reason, kind };
    this.logger.error(
      { err: error },
      'the store is unavailable; further failures are not logged until it is available again',
    );
  }

  succeeded(): void {
    if (!this.outage || performance.now() - this.outage.lastFailure < QUIET_MS) return;
    const { since, lastFailure, failures } = this.outage;
    this.outage = undefined;
    clearInterval(this.timer);
    const seconds = Math.round((lastFailure - since) / 100) / 10;
    this.logger.info({ failures, seconds }, 'the store is available again');
  }

  /** Observes all writes; reads do not show that an outage has ended. During an outage, `probe` writes regularly. */
  watch(database: Database, probe: (database: Database) => Promise<void>): Database {
    this.probe = () => this.observe(probe(database)).catch(() => undefined);
    return {
      ...database,
      write: (unit, options) => this.observe(database.write(unit, options)),
      writeFor: (owner, unit, options) => this.observe(database.writeFor(owner, unit, options)),
    };
  }

  /** Stops writing during an outage. */
  close(): void {
    this.isClosed = true;
    clearInterval(this.timer);
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

const MAX_REASON = 300;

/** Errors of several addresses have an empty message. */
function describeReason(error: unknown): string {
  const { errors } = error as { readonly errors?: readonly unknown[] };
  const first = Array.isArray(errors) && errors.length > 0 ? errors[0] : error;
  return (first instanceof Error ? first.message : String(first)).slice(0, MAX_REASON);
}
