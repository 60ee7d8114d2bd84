import { randomBytes } from 'node:crypto';
import { rmSync, statSync } from 'node:fs';
import { open, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { OracleError } from '@sibyl/protocol';

/** Freeing space takes an operator or an hourly job. */
const RETRY_AFTER_SECONDS = 30;

/** What was refused is deleted by then. */
const RECENT_MS = 60_000;

/** What an upload or archive of unknown length reserves at a time. */
const STEP_BYTES = 8 * 1024 * 1024;

/** Files and archives leave more free, so that messages are accepted long after uploads are not. */
const KEPT_BY_FILES = 2;

const BALLAST = 'ballast';
/** More than the log of SQLite, which is moved into its file before its space can be used to delete. */
const BALLAST_BYTES = 24 * 1024 * 1024;
const PIECE_BYTES = 1024 * 1024;

/** The free space of the file system of DATA_DIR, of which some is kept free for what must always work. */
export class DiskSpace {
  private readonly minFree: number;
  /** Free bytes; undefined if they cannot be read. */
  readonly readFree: () => Promise<number | undefined>;
  private readonly folder: string;
  private readonly ballast: string;
  private readonly reservations = new Set<DiskReservation>();
  private refusedAt: number | undefined;

  /** `minFree` in bytes; 0 switches the check off. */
  constructor(folder: string, minFree: number) {
    this.folder = folder;
    this.minFree = minFree;
    this.ballast = join(folder, BALLAST);
    this.readFree = oncePerSecond(() => readFreeBytes(folder));
  }

  /** Whether new sessions and messages are rejected. False if the free space is unknown: then the write decides. */
  async isLow(): Promise<boolean> {
    if (this.minFree === 0) return false;
    const free = await this.readFree();
    return free !== undefined && free < this.minFree;
  }

  /** Throws if space is low. Only for new data: deleting and finishing must still be possible. */
  async assertRoom(): Promise<void> {
    if (await this.isLow()) throw createFullError();
  }

  /**
   * Reserves space for what arrives in pieces: `bytes`, or some at a time if its length is unknown. Throws if DISK_MIN_FREE
   * would not stay free after all reservations are used. The caller releases it.
   */
  async reserve(bytes?: number): Promise<DiskReservation> {
    const assert = (own: DiskReservation) => this.assertReservable(own);
    const reservation = new DiskReservation(this.reservations, bytes ?? STEP_BYTES, assert);
    try {
      await this.assertReservable(reservation);
      return reservation;
    } catch (error) {
      reservation.release();
      throw error;
    }
  }

  /** Whether deleted data should give its space back now: little is free, or something was refused recently. */
  async isShort(): Promise<boolean> {
    const sinceMs = performance.now() - (this.refusedAt ?? Number.NEGATIVE_INFINITY);
    return sinceMs < RECENT_MS || this.isLow();
  }

  /** Keeps space in a file, which `freeBallast` gives back; not if that would leave too little. */
  async createBallast(): Promise<void> {
    const size = statSync(this.ballast, { throwIfNoEntry: false })?.size;
    if (this.minFree === 0 || size === BALLAST_BYTES) return;
    this.freeBallast();
    const free = await readFreeBytes(this.folder);
    if (free === undefined || free - this.countReserved() - BALLAST_BYTES < this.minFree) return;
    const file = await open(this.ballast, 'wx', 0o600);
    try {
      for (let at = 0; at < BALLAST_BYTES; at += PIECE_BYTES)
        // A file system may store equal bytes without using space.
        await file.write(await promisify(randomBytes)(PIECE_BYTES));
    } catch (error) {
      this.freeBallast();
      throw error;
    } finally {
      await file.close();
    }
  }

  /** Gives the space of the ballast back, so that a full disk allows the host to start and users to delete. */
  freeBallast(): void {
    rmSync(this.ballast, { force: true });
  }

  /** As `freeBallast`, if hardly anything else is free. */
  async freeBallastIfFull(): Promise<void> {
    const free = await readFreeBytes(this.folder);
    if (free !== undefined && free < BALLAST_BYTES) this.freeBallast();
  }

  /** Of several that do not fit together, the first comes first. */
  private async assertReservable(own: DiskReservation): Promise<void> {
    const free = await readFreeBytes(this.folder);
    if (free === undefined || free - this.countReserved(own) >= this.minFree * KEPT_BY_FILES)
      return;
    this.refusedAt = performance.now();
    throw createFullError();
  }

  /** Bytes of all reservations, or of one and those before it. */
  private countReserved(last?: DiskReservation): number {
    let sum = 0;
    for (const reservation of this.reservations) {
      sum += reservation.left;
      if (reservation === last) break;
    }
    return sum;
  }
}

/** Space that is promised, but not used yet. */
export class DiskReservation {
  private used = 0;

  constructor(
    private readonly all: Set<DiskReservation>,
    private bytes: number,
    private readonly assertReservable: (own: DiskReservation) => Promise<void>,
  ) {
    all.add(this);
  }

  /** Bytes that are not used yet. */
  get left(): number {
    return Math.max(0, this.bytes - this.used);
  }

  /** Called before `size` bytes are stored in all; throws if others have used what was free. */
  async cover(size: number): Promise<void> {
    if (size > this.bytes) this.bytes = size + STEP_BYTES;
    await this.assertReservable(this);
    this.used = size;
  }

  /** Gives back what is left; repeated calls have no effect. */
  release(): void {
    this.all.delete(this);
  }
}

const createFullError = () =>
  new OracleError('disk_full', { retryAfterSeconds: RETRY_AFTER_SECONDS });

async function readFreeBytes(folder: string): Promise<number | undefined> {
  try {
    const { bavail, bsize } = await statfs(folder);
    return bavail * bsize;
  } catch {
    return undefined;
  }
}
const FRESH_MS = 1_000;

/** Wraps a check that any client can trigger: at most one runs at a time, and its result is reused for one second. */
export function oncePerSecond<T>(check: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | undefined;
  let last: { readonly result: Promise<T>; readonly at: number } | undefined;
  return () => {
    if (running) return running;
    if (last && performance.now() - last.at < FRESH_MS) return last.result;
    const result = check();
    running = result;
    const settle = () => {
      running = undefined;
      last = { result, at: performance.now() };
    };
    result.then(settle, settle);
    return result;
  };
}
