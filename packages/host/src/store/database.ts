import type { DatabaseEngine } from '@sibyl/plugin-kit';
import type { Kysely } from 'kysely';
import type { DiskSpace } from './disk-space.js';
import type { MigrationPlan } from './migrations.js';
import type { RemovalLog } from './own-data/removal-log.js';
import type { Schema } from './schema/index.js';

/** A unit of work; it awaits only queries on the given tables, and may run again if the database rolls it back. */
export type Unit<T> = (tables: Kysely<Schema>) => Promise<T>;

/** How a unit of work is queued. */
export interface WriteOptions<T> {
  /** Called as soon as others see the outcome, if that is before it is on disk. */
  readonly onCommit?: ((value: T) => void) | undefined;
  /** Before all that wait already: the end of work that was accepted. */
  readonly isFirst?: boolean | undefined;
}

/** One engine, opened and migrated. */
export interface Database {
  readonly engine: DatabaseEngine;
  /** The current time in milliseconds, by the clock of the database: all hosts that share it agree on it. */
  readonly now: () => number;
  /** Single reads outside any transaction. */
  readonly tables: Kysely<Schema>;
  /** Runs a unit of work in a transaction; settles once the outcome is on disk. */
  write<T>(unit: Unit<T>, options?: WriteOptions<T>): Promise<T>;
  /**
   * As `write`, but units of one owner never run at the same time, on any host: rows that a unit has counted do not
   * change until it is committed.
   */
  writeFor<T>(owner: string, unit: Unit<T>, options?: WriteOptions<T>): Promise<T>;
  /** How long a write that is submitted now would probably wait until it begins, in milliseconds. */
  estimateDelay(): number;
  /** Whether writes wait only for others: part of one was stored within the last `ms`. */
  isStoring(ms: number): boolean;
  /** Runs several reads on one snapshot. */
  read<T>(unit: Unit<T>): Promise<T>;
  /** Migrates a schema other than that of the host. */
  migrate(plan: MigrationPlan): Promise<void>;
  /** Returns the space of deleted rows to the file system, if the engine does not do so itself. */
  reclaim(log?: ReclaimedLog): Promise<void>;
  close(): Promise<void>;
}

/** `behind`: the next start will migrate the database. */
export type DatabaseState = 'absent' | 'behind' | 'ready';

/** Runs reads on one snapshot, also while other processes write. */
export function readSnapshot<T>(tables: Kysely<Schema>, unit: Unit<T>): Promise<T> {
  return tables
    .transaction()
    .setIsolationLevel('repeatable read')
    .setAccessMode('read only')
    .execute(unit);
}

const NUL = '\u0000';

/**
 * Replaces NUL characters by U+FFFD: PostgreSQL rejects them in text, and a request with one must not fail on either
 * engine.
 */
export function storable(value: unknown): unknown {
  if (typeof value !== 'string' || !value.includes(NUL)) return value;
  return value.replaceAll(NUL, '\uFFFD');
}

/** The log of SQLite: on a full disk, deleting needs the space that it has. */
export type ReclaimedLog = 'emptied' | 'kept';

export interface StoreContext {
  readonly database: Database;
  /** The current time in milliseconds. */
  readonly clock: () => number;
  readonly newId: () => string;
  /** Unset if the database is not on a disk of this host. */
  readonly disk?: DiskSpace | undefined;
  readonly removals?: RemovalLog | undefined;
}
