import { type Kysely, sql } from 'kysely';
import type { Schema } from '../database.js';

/** How often the clocks are compared. */
const COMPARE_MS = 60_000;
/** Clocks of servers usually differ by less; small corrections would make time jump. */
const TOLERANCE_MS = 250;

/** The time by the clock of PostgreSQL, which may differ from that of this machine. */
export class DatabaseClock {
  /** What has to be added to the time of this machine. */
  private offsetMs = 0;
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
    return Date.now() + this.offsetMs;
  }

  stop(): void {
    clearInterval(this.timer);
  }

  private async compare(): Promise<void> {
    const before = Date.now();
    const { rows } = await sql<{ now: number }>`
      select (extract(epoch from clock_timestamp()) * 1000)::bigint as now`.execute(this.tables);
    const after = Date.now();
    const read = rows[0]?.now ?? after;
    // The database read its clock at some moment in between.
    const uncertainMs = (after - before) / 2;
    const offsetMs = Math.round(read - before - uncertainMs);
    if (Math.abs(offsetMs - this.offsetMs) > TOLERANCE_MS + uncertainMs) this.offsetMs = offsetMs;
  }
}
