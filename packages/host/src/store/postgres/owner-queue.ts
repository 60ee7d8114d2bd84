import { sql } from 'kysely';
import type { Database, Unit } from '../database/database.js';

/** Sets our locks apart from those that other programs take on the same server. */
const LOCK_CLASS = 0x51b1;

/**
 * Runs the writes of one owner one after the other: those of this host wait here, without a
 * connection each, and those of other hosts wait for the owner's lock.
 */
export class OwnerQueue {
  readonly #write: Database['write'];
  /** The last write of each owner that has any in progress. */
  readonly #tails = new Map<string, Promise<void>>();

  constructor(write: Database['write']) {
    this.#write = write;
  }

  write<T>(owner: string, unit: Unit<T>): Promise<T> {
    const writing = (this.#tails.get(owner) ?? Promise.resolve()).then(() =>
      this.#write(async (tables) => {
        // A statement of its own: one that also read would see what was there before it got the lock.
        await sql`select pg_advisory_xact_lock(${LOCK_CLASS}::int, hashtext(${owner}))`.execute(
          tables,
        );
        return unit(tables);
      }),
    );
    const forget = () => {
      if (this.#tails.get(owner) === tail) this.#tails.delete(owner);
    };
    const tail: Promise<void> = writing.then(forget, forget);
    this.#tails.set(owner, tail);
    return writing;
  }

  /** Settles once no write is left. */
  async settled(): Promise<void> {
    while (this.#tails.size > 0) await Promise.all(this.#tails.values());
  }
}
