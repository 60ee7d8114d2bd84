import { OracleError } from '@sibyl/protocol';
import { sql } from 'kysely';
import type { Database, Unit } from '../database.js';
import { StoreError } from '../store-errors.js';

/** Sets our locks apart from those that other programs take on the same server. */
export const OWNER_LOCK_CLASS = 0x51b1;

/** Writes of one owner that may wait behind the one in progress. */
const MAX_WAITING = 1000;
const RETRY_SECONDS = 5;

/** The writes of one owner: one in progress, and those that wait for it. */
interface Line {
  readonly waiting: Set<Pick<OwnerWrite<unknown>, 'run'>>;
  served: Promise<void>;
}

/**
 * Runs the writes of one owner one after the other: those of this host wait here, without a
 * connection each, and those of other hosts wait for the owner's lock.
 */
export class OwnerQueue {
  readonly #write: Database['write'];
  private readonly waitMs: number;
  /** The owners that have a write in progress. */
  private readonly lines = new Map<string, Line>();

  /** `waitMs`: how long a write may wait until it begins; it fails after that, and never begins. */
  constructor(write: Database['write'], waitMs: number) {
    this.#write = write;
    this.waitMs = waitMs;
  }

  async write<T>(owner: string, unit: Unit<T>): Promise<T> {
    const line = this.lines.get(owner) ?? { waiting: new Set(), served: Promise.resolve() };
    if (line.waiting.size >= MAX_WAITING)
      throw new OracleError('rate_limited', { retryAfterSeconds: RETRY_SECONDS });
    const writing: OwnerWrite<T> = new OwnerWrite(unit, this.waitMs, () =>
      line.waiting.delete(writing),
    );
    line.waiting.add(writing);
    if (!this.lines.has(owner)) {
      this.lines.set(owner, line);
      line.served = this.serve(owner, line);
    }
    return writing.outcome;
  }

  /** Settles once no write is left. */
  async settled(): Promise<void> {
    while (this.lines.size > 0)
      await Promise.all([...this.lines.values()].map(({ served }) => served));
  }

  private async serve(owner: string, { waiting }: Line): Promise<void> {
    // The loop also reaches the writes that are added while it runs.
    for (const writing of waiting) {
      waiting.delete(writing);
      // Also when it has given up: two writes in progress would take two connections.
      await writing.run(owner, this.#write);
    }
    this.lines.delete(owner);
  }
}

/** A write that fails unless it begins in time. */
class OwnerWrite<T> {
  private readonly unit: Unit<T>;
  private readonly settled = Promise.withResolvers<T>();
  private readonly timer: NodeJS.Timeout;
  private fault: StoreError | undefined;

  constructor(unit: Unit<T>, waitMs: number, onGiveUp: () => void) {
    this.unit = unit;
    this.timer = setTimeout(() => {
      this.fault = new StoreError(`The write did not begin within ${waitMs / 1000} s`);
      this.settled.reject(this.fault);
      onGiveUp();
    }, waitMs);
  }

  get outcome(): Promise<T> {
    return this.settled.promise;
  }

  /** Never rejects. */
  async run(owner: string, write: Database['write']): Promise<void> {
    try {
      const value = await write(async (tables) => {
        // A statement of its own: one that also read would see what was there before it got the lock.
        await sql`select pg_advisory_xact_lock(${OWNER_LOCK_CLASS}::int, hashtext(${owner}))`.execute(
          tables,
        );
        if (this.fault) throw this.fault;
        clearTimeout(this.timer);
        return this.unit(tables);
      });
      this.settled.resolve(value);
    } catch (error) {
      this.settled.reject(error);
    } finally {
      clearTimeout(this.timer);
    }
  }
}
