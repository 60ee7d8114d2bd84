import { OracleError } from '@sibyl/protocol';
import { sql } from 'kysely';
import pg from 'pg';
import type { Database, Unit } from '../database.js';
import { StoreError } from '../store-errors.js';

/** Distinguishes our locks from those of other programs on the same server. */
export const OWNER_LOCK_CLASS = 0x51b1;

/** Without parameters, so that it can be sent together with `begin`. */
const LOCK = `select pg_advisory_xact_lock(${OWNER_LOCK_CLASS}, hashtext(`;

export const isOwnerLock = (statement: string): boolean => statement.startsWith(LOCK);

/** Writes of one owner that may wait behind the one in progress. */
const MAX_WAITING = 1000;
const RETRY_SECONDS = 5;

/** The writes of one owner that wait for the one in progress. */
interface WriteQueue {
  readonly waiting: Set<Pick<OwnerWrite<unknown>, 'run'>>;
  drained: Promise<void>;
}

/**
 * Runs the writes of one owner one after the other: those of this host wait here without a connection, those of other
 * hosts wait for the lock of the owner.
 */
export class OwnerQueue {
  private readonly runWrite: Database['write'];
  private readonly waitMs: number;
  /** The owners that have a write in progress. */
  private readonly queues = new Map<string, WriteQueue>();

  /** `waitMs`: how long a write may wait until it begins; after that it fails and never begins. */
  constructor(write: Database['write'], waitMs: number) {
    this.runWrite = write;
    this.waitMs = waitMs;
  }

  async write<T>(owner: string, unit: Unit<T>): Promise<T> {
    const queue = this.queues.get(owner) ?? { waiting: new Set(), drained: Promise.resolve() };
    if (queue.waiting.size >= MAX_WAITING)
      throw new OracleError('rate_limited', { retryAfterSeconds: RETRY_SECONDS });
    const writing: OwnerWrite<T> = new OwnerWrite(unit, this.waitMs, () =>
      queue.waiting.delete(writing),
    );
    queue.waiting.add(writing);
    if (!this.queues.has(owner)) {
      this.queues.set(owner, queue);
      queue.drained = this.drain(owner, queue);
    }
    return writing.outcome;
  }

  /** Settles once no write is left. */
  async settled(): Promise<void> {
    while (this.queues.size > 0)
      await Promise.all([...this.queues.values()].map(({ drained }) => drained));
  }

  private async drain(owner: string, { waiting }: WriteQueue): Promise<void> {
    // The loop also reaches the writes that are added while it runs.
    for (const writing of waiting) {
      waiting.delete(writing);
      // Waits also for a write that has timed out: two writes would take two connections.
      await writing.run(owner, this.runWrite);
    }
    this.queues.delete(owner);
  }
}

/** A write that fails unless it begins in time. */
class OwnerWrite<T> {
  private readonly unit: Unit<T>;
  private readonly settled = Promise.withResolvers<T>();
  private readonly timer: NodeJS.Timeout;
  private error: StoreError | undefined;

  constructor(unit: Unit<T>, waitMs: number, onTimeout: () => void) {
    this.unit = unit;
    this.timer = setTimeout(() => {
      this.error = new StoreError(`The write did not begin within ${waitMs / 1000} s`);
      this.settled.reject(this.error);
      onTimeout();
    }, waitMs);
  }

  get outcome(): Promise<T> {
    return this.settled.promise;
  }

  /** Never rejects. */
  async run(owner: string, write: Database['write']): Promise<void> {
    try {
      const value = await write(async (tables) => {
        // A separate statement: one that also reads would see a snapshot from before the lock.
        await sql.raw(`${LOCK}${pg.escapeLiteral(owner)}))`).execute(tables);
        if (this.error) throw this.error;
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
