import fs from 'node:fs';
import { setImmediate as nextTick } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { ControlledTransaction, Kysely } from 'kysely';
import type { Schema, Unit } from '../database.js';
import { StoreError } from '../store-errors.js';

/** Limits how long one commit blocks the event loop. */
const MAX_UNITS = 64;

/** Each waiting unit keeps its request in memory; a slow disk needs seconds for this many. */
const MAX_WAITING = 10_000;

interface Waiting {
  readonly unit: Unit<unknown>;
  readonly resolve: (value: unknown) => void;
  readonly reject: (reason: unknown) => void;
}

/**
 * Runs units of work in one transaction if they were submitted while the disk was busy with those before. A unit that fails
 * is rolled back alone; all promises settle once the commit is on disk.
 */
export class GroupCommit {
  private readonly tables: Kysely<Schema>;
  private readonly log: LogFile;
  private waiting: Waiting[] = [];
  private draining: Promise<void> | undefined;

  constructor(tables: Kysely<Schema>, log: LogFile) {
    this.tables = tables;
    this.log = log;
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

  /** Settles once all submitted units are on disk. */
  async settled(): Promise<void> {
    await this.draining;
  }

  private async drain(): Promise<void> {
    while (this.waiting.length > 0) {
      // Units that arrive in the same tick of the event loop join this commit.
      await nextTick();
      await this.commit(this.waiting.splice(0, MAX_UNITS));
    }
    this.draining = undefined;
  }

  private async commit(units: readonly Waiting[]): Promise<void> {
    try {
      const answers = await this.runAll(units);
      await this.log.sync();
      for (const answer of answers) answer();
    } catch (error) {
      for (const { reject } of units) reject(error);
    }
  }

  private async runAll(units: readonly Waiting[]): Promise<(() => void)[]> {
    const transaction = await this.tables.startTransaction().execute();
    try {
      const answers = await runUnits(transaction, units);
      await transaction.commit().execute();
      return answers;
    } catch (error) {
      await transaction.rollback().execute();
      throw error;
    }
  }
}

const open = promisify(fs.open);
const close = promisify(fs.close);
const fdatasync = (descriptor: number) =>
  new Promise<void>((resolve, reject) => {
    fs.fdatasync(descriptor, (error) => (error ? reject(error) : resolve()));
  });

/**
 * The write-ahead log, synced to disk here rather than by SQLite (`synchronous = normal`), because SQLite would block the
 * event loop for as long as the disk takes.
 */
export class LogFile {
  private readonly path: string;
  private descriptor: number | undefined;

  constructor(path: string) {
    this.path = path;
  }

  /** Settles once everything that was committed before is on disk. */
  async sync(): Promise<void> {
    try {
      this.descriptor ??= await open(this.path, 'r+');
      await fdatasync(this.descriptor);
    } catch (cause) {
      throw new StoreError(`Cannot write ${this.path} to disk; check the disk`, { cause });
    }
  }

  async close(): Promise<void> {
    if (this.descriptor !== undefined) await close(this.descriptor);
    this.descriptor = undefined;
  }
}

/** A unit that is alone needs no savepoint: the whole transaction is rolled back with it. */
async function runUnits(
  transaction: ControlledTransaction<Schema>,
  units: readonly Waiting[],
): Promise<(() => void)[]> {
  const [first] = units;
  if (first && units.length === 1) {
    const value = await first.unit(transaction);
    return [() => first.resolve(value)];
  }
  const answers: (() => void)[] = [];
  for (const waiting of units) answers.push(await runOne(transaction, waiting));
  return answers;
}

/** Runs one unit in the shared transaction; returns the function that settles its promise after the commit. */
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
    await rollBack(inUnit).catch(() => {
      // SQLite has already rolled back the whole transaction, as it does when the disk is full.
      throw error;
    });
    return () => reject(error);
  }
}

async function rollBack(unit: ControlledTransaction<Schema, ['unit']>): Promise<void> {
  await unit.rollbackToSavepoint('unit').execute();
  await unit.releaseSavepoint('unit').execute();
}
