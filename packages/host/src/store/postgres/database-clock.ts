import { type Kysely, sql } from 'kysely';
import type { Schema } from '../schema/index.js';

/** How often the clocks are compared. */
const COMPARE_MS = 60_000;
/** Clocks of servers usually differ by less; small corrections would make time jump. */
const TOLERANCE_MS = 250;

/**
 * The time by the clock of PostgreSQL. Between comparisons it advances with the time since the start of this process,
 * which does not jump when the clock of this machine is set.
 */
export class DatabaseClock {
  /** What has to be added to the time since the start of this process. */
  private offsetMs = 0;
  /** The same for the clock of this machine. */
  private machineMs = readMachine();
  private timer: NodeJS.Timeout | undefined;

  private constructor(private readonly tables: Kysely<Schema>) {}

  static async start(tables: Kysely<Schema>): Promise<DatabaseClock> {
    const clock = new DatabaseClock(tables);
    // The first comparison establishes a connection, so it is not precise.
    await clock.compare();
    await clock.compare();
    // While the database is away, the last comparison counts.
    clock.timer = setInterval(() => void clock.compare().catch(() => undefined), COMPARE_MS);
    clock.timer.unref();
    return clock;
  }

  now(): number {
    const machineMs = readMachine();
    // It was set, or the machine was suspended: then less time has passed for this process.
    if (Math.abs(machineMs - this.machineMs) > TOLERANCE_MS) {
      this.machineMs = machineMs;
      void this.compare().catch(() => undefined);
    }
    return Math.floor(performance.now() + this.offsetMs);
  }

  stop(): void {
    clearInterval(this.timer);
  }

  private async compare(): Promise<void> {
    const before = performance.now();
    const { rows } = await sql<{ now: number }>`
      select (extract(epoch from clock_timestamp()) * 1000)::bigint as now`.execute(this.tables);
    const after = performance.now();
    const read = rows[0]?.now ?? Date.now();
    // The database read its clock at some moment in between.
    const uncertainMs = (after - before) / 2;
    const offsetMs = Math.round(read - before - uncertainMs);
    if (Math.abs(offsetMs - this.offsetMs) > TOLERANCE_MS + uncertainMs) this.offsetMs = offsetMs;
  }
}

const readMachine = () => Date.now() - performance.now();
