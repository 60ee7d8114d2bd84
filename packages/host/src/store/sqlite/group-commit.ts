import fs from 'node:fs';
import { setImmediate as nextTick } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { Unit, WriteOptions } from '../database.js';
import type { Schema } from '../schema/index.js';
import { classifyStoreError, StoreError, UnsyncedError } from '../store-errors.js';
import type { SqliteDialect } from './sqlite-dialect.js';

/** Limits how long one commit blocks the event loop. */
const MAX_UNITS = 64;

/** Share of the latest commit in the average duration. */
const LATEST_SHARE = 0.3;

/** Each waiting unit keeps its request in memory; a slow disk needs seconds for this many. */
const MAX_WAITING = 10_000;

interface Waiting {
  readonly unit: Unit<unknown>;
  readonly onCommit: (value: unknown) => void;
  readonly resolve: (value: unknown) => void;
  readonly reject: (reason: unknown) => void;
}

/** What happened to a unit of the transaction. */
interface Outcome {
  /** Called once the transaction is committed. */
  readonly announce?: () => void;
  /** Called once the commit is on disk. */
  readonly settle: () => void;
}

/**
 * Runs units of work in one transaction if they were submitted while the disk was busy with those before. A unit that fails
 * is rolled back alone; all promises settle once the commit is on disk.
 */
export class GroupCommit {
  private readonly dialect: SqliteDialect;
  private readonly log: LogFile;
  private readonly freeSpace: () => void;
  /** Each end of a turn was accepted with its start, so there is no limit for them. */
  private first: Waiting[] = [];
  private waiting: Waiting[] = [];
  /** The average duration of a commit. */
  private commitMs = 0;
  private progressAt = Number.NEGATIVE_INFINITY;
  private draining: Promise<void> | undefined;
  private isClosed = false;

  /** `freeSpace` is called when the disk is full. */
  constructor(dialect: SqliteDialect, log: LogFile, freeSpace: () => void) {
    this.dialect = dialect;
    this.log = log;
    this.freeSpace = freeSpace;
  }

  /** Calls `onCommit` when other connections see what the unit wrote, before it is on disk. */
  write<T>(unit: Unit<T>, { onCommit, isFirst }: WriteOptions<T> = {}): Promise<T> {
    if (this.isClosed) return Promise.reject(new StoreError('The store is closed'));
    const queue = isFirst ? this.first : this.waiting;
    if (queue === this.waiting && queue.length >= MAX_WAITING) {
      return Promise.reject(new StoreError('Too many writes are waiting; try again'));
    }
    return new Promise<T>((resolve, reject) => {
      queue.push({
        unit,
        onCommit: (value) => onCommit?.(value as T),
        resolve: (value) => resolve(value as T),
        reject,
      });
      this.draining ??= this.drain();
    });
  }

  /** Settles once all submitted units are on disk; later ones are rejected. */
  async close(): Promise<void> {
    this.isClosed = true;
    await this.draining;
    await this.log.close();
  }

  /** None for what fits into the next commit: if every commit is slow, waiting for one does not mean a long queue. */
  estimateDelay(): number {
    const commits = Math.floor((this.first.length + this.waiting.length) / MAX_UNITS);
    return commits * this.commitMs;
  }

  isStoring(ms: number): boolean {
    return performance.now() - this.progressAt < ms;
  }

  private async drain(): Promise<void> {
    while (this.first.length + this.waiting.length > 0) {
      const startedAt = performance.now();
      // Units that arrive in the same tick of the event loop join this commit.
      await nextTick();
      const units = this.first.splice(0, MAX_UNITS);
      units.push(...this.waiting.splice(0, MAX_UNITS - units.length));
      await this.commit(units);
      this.commitMs += LATEST_SHARE * (performance.now() - startedAt - this.commitMs);
    }
    this.draining = undefined;
  }

  private async commit(units: readonly Waiting[]): Promise<void> {
    try {
      const outcomes = await this.runAll(units).catch((error) => this.runAlone(units, error));
      for (const { announce } of outcomes) announce?.();
      await this.log.sync();
      this.progressAt = performance.now();
      for (const { settle } of outcomes) settle();
    } catch (error) {
      for (const { reject } of units) reject(error);
    }
  }

  /** On a full disk, what is small and what deletes may still fit. */
  private async runAlone(units: readonly Waiting[], error: unknown): Promise<Outcome[]> {
    if (!isFull(error)) throw error;
    this.freeSpace();
    const outcomes: Outcome[] = [];
    for (const unit of units) {
      const refuse = (reason: unknown): Outcome[] => [{ settle: () => unit.reject(reason) }];
      outcomes.push(...(await this.runAll([unit]).catch(refuse)));
    }
    return outcomes;
  }

  private async runAll(units: readonly Waiting[]): Promise<Outcome[]> {
    const { driver } = this.dialect;
    await driver.beginTransaction();
    try {
      const [first] = units;
      // A unit that is alone needs no savepoint: the whole transaction is rolled back with it.
      const isAlone = first !== undefined && units.length === 1;
      const outcomes = isAlone ? [await this.runUnit(first)] : await this.runEach(units);
      await driver.commitTransaction();
      return outcomes;
    } catch (error) {
      await driver.rollbackTransaction();
      throw error;
    }
  }

  private async runEach(units: readonly Waiting[]): Promise<Outcome[]> {
    const { driver } = this.dialect;
    const outcomes: Outcome[] = [];
    for (const waiting of units) {
      driver.beginUnit();
      try {
        const outcome = await this.runUnit(waiting);
        driver.endUnit();
        outcomes.push(outcome);
      } catch (error) {
        // SQLite rolls back the whole transaction by itself when the disk is full or fails, but not always.
        if (!driver.isInTransaction || isFull(error)) throw error;
        driver.undoUnit();
        outcomes.push({ settle: () => waiting.reject(error) });
      }
    }
    return outcomes;
  }

  private async runUnit({ unit, onCommit, resolve }: Waiting): Promise<Outcome> {
    const { tables, close } = this.dialect.openUnit<Schema>();
    try {
      const value = await unit(tables);
      return { announce: () => onCommit(value), settle: () => resolve(value) };
    } finally {
      close();
      this.progressAt = performance.now();
    }
  }
}

const isFull = (error: unknown): boolean => classifyStoreError(error) === 'full';

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
  private failure: UnsyncedError | undefined;

  constructor(path: string) {
    this.path = path;
  }

  /** Settles once everything that was committed before is on disk. */
  async sync(): Promise<void> {
    if (this.failure) throw this.failure;
    try {
      this.descriptor ??= await open(this.path, 'r+');
      await fdatasync(this.descriptor);
    } catch (cause) {
      const error = new UnsyncedError(
        `Cannot write ${this.path} to disk; check the disk, then start the host again`,
        { cause },
      );
      // The system may have dropped what it could not write, so a second attempt would succeed without it.
      if (classifyStoreError(cause) !== 'full') this.failure = error;
      throw error;
    }
  }

  async close(): Promise<void> {
    if (this.descriptor !== undefined) await close(this.descriptor);
    this.descriptor = undefined;
  }
}
