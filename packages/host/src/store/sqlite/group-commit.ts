import { setImmediate as nextTick } from 'node:timers/promises';
import type { ControlledTransaction, Kysely } from 'kysely';
import type { Schema, Unit } from '../database.js';
import { StoreError } from '../store-errors.js';

/** Bounds how long one commit keeps the event loop; the units run without a pause. */
const MAX_UNITS = 64;

/** Seconds of work for a slow disk; each waiting unit keeps its request in memory. */
const MAX_WAITING = 10_000;

interface Waiting {
  readonly unit: Unit<unknown>;
  readonly resolve: (value: unknown) => void;
  readonly reject: (reason: unknown) => void;
}

/**
 * Lets units submitted at the same time share one transaction and so one fsync, which stops the
 * event loop. A unit that fails undoes only itself; each caller hears after the commit.
 */
export class GroupCommit {
  private readonly tables: Kysely<Schema>;
  private waiting: Waiting[] = [];
  private draining: Promise<void> | undefined;

  constructor(tables: Kysely<Schema>) {
    this.tables = tables;
  }

  write<T>(unit: Unit<T>): Promise<T> {
    if (this.waiting.length >= MAX_WAITING) {
      return Promise.reject(new StoreError('Too many writes are waiting; try again'));
    }
    return new Promise<T>((resolve, reject) => {
      this.waiting.push({ unit, resolve: (value) => resolve(value as T), reject });
      this.draining ??= this.drain();
    });
  }

  /** Settles once everything submitted so far is on disk. */
  async settled(): Promise<void> {
    await this.draining;
  }

  private async drain(): Promise<void> {
    while (this.waiting.length > 0) {
      // What arrives in the same turn of the event loop joins this commit.
      await nextTick();
      await this.commit(this.waiting.splice(0, MAX_UNITS));
    }
    this.draining = undefined;
  }

  private async commit(units: readonly Waiting[]): Promise<void> {
    try {
      const answers = await this.runAll(units);
      for (const answer of answers) answer();
    } catch (error) {
      for (const { reject } of units) reject(error);
    }
  }

  private async runAll(units: readonly Waiting[]): Promise<(() => void)[]> {
    const transaction = await this.tables.startTransaction().execute();
    try {
      const answers: (() => void)[] = [];
      for (const waiting of units) answers.push(await runOne(transaction, waiting));
      await transaction.commit().execute();
      return answers;
    } catch (error) {
      await transaction.rollback().execute();
      throw error;
    }
  }
}

/** Runs one unit inside the shared transaction and returns how to answer once that is committed. */
async function runOne(
  transaction: ControlledTransaction<Schema>,
  { unit, resolve, reject }: Waiting,
): Promise<() => void> {
  const inUnit = await transaction.savepoint('unit').execute();
  try {
    const value = await unit(inUnit);
    await inUnit.releaseSavepoint('unit').execute();
    return () => resolve(value);
  } catch (error) {
    await undo(inUnit).catch(() => {
      // SQLite has already undone the whole transaction, as it does when the disk is full.
      throw error;
    });
    return () => reject(error);
  }
}

async function undo(unit: ControlledTransaction<Schema, ['unit']>): Promise<void> {
  await unit.rollbackToSavepoint('unit').execute();
  await unit.releaseSavepoint('unit').execute();
}
