import type { JobSummary, PluginDatabase } from '@sibyl/plugin-kit';
import { OracleError, RateLimiter } from '@sibyl/plugin-kit';
import type { OwnersPage } from '@sibyl/plugin-kit/deliveries';
import {
  pruneRuns,
  type RunRow,
  readTime,
  readTrigger,
  type ScheduleKey,
  type ScheduleRow,
  type ScheduleTables,
  type Tables,
} from './schedule-store.js';
import { computeBackoff, decideDue, findNextDue } from './timing.js';

/** Rows that one claim takes. */
const BATCH = 20;
/** A host that has not started a run within this time has died; another one starts it. */
const START_MS = 15_000;
/** One run and one that waits for it; further due times are skipped. */
const MAX_OPEN = 2;
const MAX_FAILURES = 10;

interface OwnRuns {
  readonly owner: string;
  readonly limit: number;
}

export interface RunKey {
  readonly owner: string;
  readonly scheduleId: string;
  readonly dueAt: number;
}

/** How a run ended. */
export interface RunEnd {
  readonly status: 'finished' | 'failed' | 'aborted' | 'interrupted';
  readonly error?: string | undefined;
}

interface Rate {
  readonly cause: 'manual' | 'webhook';
  /** Runs with this cause in a minute. */
  readonly perMinute: number;
}

interface Manual extends Rate {
  /** What a webhook delivered. */
  readonly data: string | null;
}

/**
 * The runs of schedules. A due time is claimed in one transaction that inserts its row and advances the schedule, so
 * that no two hosts run it; the row then stays until the turn has ended, so that any host can continue it.
 */
export class ScheduleRuns {
  /** Runs that this host may claim: what is beyond it waits for no lock. */
  private readonly rates = new RateLimiter({ maxBytes: 1024 ** 2 });

  constructor(private readonly database: PluginDatabase<ScheduleTables>) {}

  /** The schedules and deliveries of all users, for operators. */
  async summarize(): Promise<readonly JobSummary[]> {
    const { tables } = this.database;
    const [schedules, runs] = await Promise.all([
      tables
        .selectFrom('schedules_schedules')
        .select((e) => ['status', e.fn.countAll().as('count'), e.fn.min('next_due_at').as('next')])
        .groupBy('status')
        .execute(),
      tables
        .selectFrom('schedules_runs')
        .select((e) => ['status', 'delivery', e.fn.countAll().as('count')])
        .groupBy(['status', 'delivery'])
        .execute(),
    ]);
    const sum = (counts: readonly { readonly count: unknown }[]) =>
      counts.reduce((total, { count }) => total + Number(count), 0);
    const active = schedules.filter(({ status }) => status === 'active');
    const next = active[0]?.next;
    const ofDelivery = (state: string) => sum(runs.filter(({ delivery }) => delivery === state));
    return [
      {
        name: 'Schedules',
        waiting: sum(active),
        running: sum(runs.filter(({ status }) => status === 'running')),
        failed: sum(runs.filter(({ status }) => status === 'failed')),
        ...(next && { nextAt: new Date(Number(next)) }),
      },
      {
        name: 'Deliveries of results',
        waiting: ofDelivery('pending'),
        running: 0,
        failed: ofDelivery('failed'),
      },
    ];
  }

  /** Claims due times of some schedules for this host. */
  claimDue(): Promise<readonly RunRow[]> {
    return this.database.write(async (tables) => {
      const now = await readTime(tables, this.database.engine);
      const due = tables
        .selectFrom('schedules_schedules')
        .selectAll()
        .where('status', '=', 'active')
        .where('next_due_at', '<=', now)
        .orderBy('next_due_at')
        .limit(BATCH);
      const rows = await (this.isPostgres ? due.forUpdate().skipLocked() : due).execute();
      const claimed: RunRow[] = [];
      for (const row of rows) claimed.push(...(await this.claim(tables, row, now)));
      return claimed;
    });
  }

  /** Throws if `claimNow` would, as far as this host knows without its database. */
  assertRate(key: ScheduleKey, { cause, perMinute }: Rate): void {
    assertAllowed(this.rates.peek(toRateKey(key, cause), perMinute));
  }

  /** Claims a run outside of the schedule's times; throws if there were too many. */
  async claimNow({ owner, id }: ScheduleKey, { cause, data, perMinute }: Manual): Promise<RunRow> {
    assertAllowed(this.rates.take(toRateKey({ owner, id }, cause), perMinute));
    // Concurrent runs of one schedule are counted one after the other.
    return this.database.writeFor(owner, async (tables) => {
      const now = await readTime(tables, this.database.engine);
      const row = await this.lockSchedule(tables, { owner, id });
      if (!row) throw new OracleError('schedule_not_found');
      await this.assertStoredRate(tables, { row, cause, perMinute, now });
      for (let dueAt = avoidSeconds(now); ; dueAt += 1) {
        // Whichever host looks first starts it.
        const run = { ...newRun(row, { dueAt, cause, data, now }), check_at: now };
        if (await insertRun(tables, run)) return run;
      }
    });
  }

  /** Takes runs that no host attends to now. */
  takeUnattended(): Promise<readonly RunRow[]> {
    return this.take('check_at', START_MS);
  }

  /** Takes results that are to be delivered now; `pauseMs` later any host may try again. */
  takeDeliveries(pauseMs: number, of: OwnRuns): Promise<readonly RunRow[]> {
    return this.take('deliver_at', pauseMs, of);
  }

  /** Users with results that are to be delivered now. */
  async listDeliveryOwners({ after, limit }: OwnersPage): Promise<readonly string[]> {
    const { tables, engine } = this.database;
    const now = await readTime(tables, engine);
    const rows = await tables
      // Otherwise, SQLite would read the runs of all users that are delivered.
      .with(
        (name) => name('due').materialized(),
        (all) => all.selectFrom('schedules_runs').select('owner').where('deliver_at', '<=', now),
      )
      .selectFrom('due')
      .select('owner')
      .distinct()
      .where('owner', '>', after)
      .orderBy('owner')
      .limit(limit)
      .execute();
    return rows.map(({ owner }) => owner);
  }

  /**
   * Records that the turn has started, or what is known of it, and when to look again. Changes nothing if another host
   * has ended the run, because this one was frozen for a while.
   */
  async attend(run: RunRow, values: Partial<RunRow>, checkInMs: number): Promise<void> {
    await this.database.write(async (tables) => {
      const now = await readTime(tables, this.database.engine);
      const update = tables
        .updateTable('schedules_runs')
        .set({ ...values, check_at: now + checkInMs });
      await whereKey(update, toRunKey(run)).where('ended_at', 'is', null).execute();
    });
  }

  /** Records what became of a delivery, unless another host has tried it as well meanwhile. */
  async recordDelivery(run: RunRow, values: Partial<RunRow>): Promise<void> {
    await this.database.write(async (tables) => {
      await whereKey(tables.updateTable('schedules_runs').set(values), toRunKey(run))
        .where('delivery', '=', 'pending')
        .where('delivery_attempts', '=', run.delivery_attempts)
        .execute();
    });
  }

  /** Ends a run, and postpones its schedule after a failure; the reason if the schedule has to stop. */
  end(key: RunKey, end: RunEnd): Promise<string | undefined> {
    const { owner, scheduleId: id } = key;
    return this.database.writeFor(owner, async (tables) => {
      const now = await readTime(tables, this.database.engine);
      const schedule = await this.lockSchedule(tables, { owner, id });
      const delivers = schedule?.result_url != null || schedule?.result_to != null;
      const ended = await whereKey(
        tables.updateTable('schedules_runs').set({
          status: end.status,
          error: end.error ?? null,
          data: null,
          check_at: null,
          ended_at: now,
          ...(delivers && { delivery: 'pending', deliver_at: now }),
        }),
        key,
      )
        .where('ended_at', 'is', null)
        .executeTakeFirst();
      // Another host was faster.
      if (!schedule || ended.numUpdatedRows === 0n) return undefined;
      return this.countFailure(tables, schedule, { ...end, now });
    });
  }

  /** The runs of the turns of a schedule that have started and not ended. */
  async listOpenTurns({ owner, id }: ScheduleKey): Promise<readonly string[]> {
    const rows = await this.database.tables
      .selectFrom('schedules_runs')
      .select('run_id')
      .where('owner', '=', owner)
      .where('schedule_id', '=', id)
      .where('run_id', 'is not', null)
      .where('ended_at', 'is', null)
      .execute();
    return rows.flatMap(({ run_id }) => run_id ?? []);
  }

  /** Milliseconds until something is due; at most `maxMs`. */
  async untilNext(maxMs: number): Promise<number> {
    const { tables, engine } = this.database;
    const now = await readTime(tables, engine);
    const due = await tables
      .selectFrom('schedules_schedules')
      .select((e) => e.fn.min('next_due_at').as('at'))
      .where('status', '=', 'active')
      .where('next_due_at', 'is not', null)
      .executeTakeFirst();
    const check = await tables
      .selectFrom('schedules_runs')
      .select((e) => e.fn.min('check_at').as('at'))
      .where('check_at', 'is not', null)
      .executeTakeFirst();
    const next = [due?.at, check?.at].filter((at) => at != null).map(Number);
    return Math.min(maxMs, ...next.map((at) => at - now));
  }

  /** Counts failures in a row; a success begins again. */
  private async countFailure(
    tables: Tables,
    schedule: ScheduleRow,
    { status, error, now }: RunEnd & { readonly now: number },
  ): Promise<string | undefined> {
    if (status !== 'failed' && status !== 'finished') return undefined;
    const failures = status === 'failed' ? schedule.failures + 1 : 0;
    await tables
      .updateTable('schedules_schedules')
      .set({ failures, ...(failures > 0 && postpone(schedule, now, failures)) })
      .where('owner', '=', schedule.owner)
      .where('id', '=', schedule.id)
      .execute();
    if (failures < MAX_FAILURES) return undefined;
    return `${MAX_FAILURES} runs in a row failed, the last with: ${error}`;
  }

  private lockSchedule(tables: Tables, { owner, id }: ScheduleKey) {
    const found = tables
      .selectFrom('schedules_schedules')
      .selectAll()
      .where('owner', '=', owner)
      .where('id', '=', id);
    return (this.isPostgres ? found.forUpdate() : found).executeTakeFirst();
  }

  private get isPostgres(): boolean {
    return this.database.engine === 'postgres';
  }

  private async claim(tables: Tables, row: ScheduleRow, now: number): Promise<RunRow[]> {
    const trigger = readTrigger(row);
    const nextDueAt = row.next_due_at ?? now;
    const { dueAt, cause, isSkipped, next } = decideDue(
      { trigger, catchUp: row.catch_up, nextDueAt },
      now,
    );
    const isFinished = next === null;
    await tables
      .updateTable('schedules_schedules')
      .set({ next_due_at: next, ...(isFinished && { status: 'finished' as const }) })
      .where('owner', '=', row.owner)
      .where('id', '=', row.id)
      .execute();
    const why = isSkipped
      ? MISSED
      : (await this.countOpen(tables, row)) >= MAX_OPEN
        ? BUSY
        : undefined;
    const run = newRun(row, { dueAt, cause, data: null, now });
    const inserted = await insertRun(tables, why === undefined ? run : skip(run, why, now));
    // Nothing else ends while an earlier run waits for its user.
    if (why !== undefined) await pruneRuns(tables, row);
    return inserted && why === undefined ? [inserted] : [];
  }

  private async countOpen(tables: Tables, { owner, id }: ScheduleRow): Promise<number> {
    const { count } = await tables
      .selectFrom('schedules_runs')
      .select((e) => e.fn.countAll<number>().as('count'))
      .where('owner', '=', owner)
      .where('schedule_id', '=', id)
      .where('ended_at', 'is', null)
      .executeTakeFirstOrThrow();
    return Number(count);
  }

  private async assertStoredRate(
    tables: Tables,
    {
      row,
      cause,
      perMinute,
      now,
    }: Rate & {
      readonly row: ScheduleRow;
      readonly now: number;
    },
  ): Promise<void> {
    const { count } = await tables
      .selectFrom('schedules_runs')
      .select((e) => e.fn.countAll<number>().as('count'))
      .where('owner', '=', row.owner)
      .where('schedule_id', '=', row.id)
      .where('due_at', '>', now - 60_000)
      .where('cause', '=', cause)
      .executeTakeFirstOrThrow();
    if (Number(count) >= perMinute)
      throw new OracleError('rate_limited', { retryAfterSeconds: 60 });
  }

  /** Takes rows that are due in a column, and moves it on, so that only one host has each. */
  private take(
    column: 'check_at' | 'deliver_at',
    pauseMs: number,
    { owner, limit = BATCH }: Partial<OwnRuns> = {},
  ): Promise<readonly RunRow[]> {
    return this.database.write(async (tables) => {
      const now = await readTime(tables, this.database.engine);
      const due = tables
        .selectFrom('schedules_runs')
        .selectAll()
        .where(column, '<=', now)
        .$if(owner !== undefined, (query) => query.where('owner', '=', owner ?? ''))
        .orderBy(column)
        .limit(limit);
      const rows = await (this.isPostgres ? due.forUpdate().skipLocked() : due).execute();
      for (const row of rows)
        await whereKey(
          tables.updateTable('schedules_runs').set({ [column]: now + pauseMs }),
          toRunKey(row),
        ).execute();
      return rows;
    });
  }
}

const toRateKey = ({ owner, id }: ScheduleKey, cause: Rate['cause']) => `${cause} ${owner} ${id}`;

function assertAllowed({ allowed, resetSeconds }: ReturnType<RateLimiter['peek']>): void {
  if (!allowed) throw new OracleError('rate_limited', { retryAfterSeconds: resetSeconds });
}

const MISSED = 'Missed while no host was running';
const BUSY = 'Earlier runs have not ended';

export const toRunKey = (row: Pick<RunRow, 'owner' | 'schedule_id' | 'due_at'>): RunKey => ({
  owner: row.owner,
  scheduleId: row.schedule_id,
  dueAt: row.due_at,
});

/** Times of schedules are whole seconds, so a run at another millisecond is none of them. */
const avoidSeconds = (now: number): number => (now % 1000 === 0 ? now + 1 : now);

interface RunFacts {
  readonly dueAt: number;
  readonly cause: RunRow['cause'];
  readonly data: string | null;
  readonly now: number;
}

function newRun(schedule: ScheduleRow, { dueAt, cause, data, now }: RunFacts): RunRow {
  return {
    owner: schedule.owner,
    schedule_id: schedule.id,
    due_at: dueAt,
    cause,
    status: 'starting',
    data,
    session_id: schedule.session_id,
    run_id: null,
    attempts: 0,
    error: null,
    check_at: now + START_MS,
    ended_at: null,
    delivery: null,
    delivery_attempts: 0,
    delivery_error: null,
    deliver_at: null,
  };
}

const skip = (run: RunRow, error: string, now: number): RunRow => ({
  ...run,
  status: 'skipped',
  error,
  data: null,
  check_at: null,
  ended_at: now,
});

/** Undefined if the due time was claimed before. */
const insertRun = (tables: Tables, run: RunRow): Promise<RunRow | undefined> =>
  tables
    .insertInto('schedules_runs')
    .values(run)
    .onConflict((c) => c.columns(['owner', 'schedule_id', 'due_at']).doNothing())
    .returningAll()
    .executeTakeFirst();

/** The next due time after a pause that grows with each failure in a row. */
function postpone(row: ScheduleRow, now: number, failures: number) {
  if (row.next_due_at === null) return {};
  const next = findNextDue(readTrigger(row), now + computeBackoff(failures));
  return next !== null && next > row.next_due_at ? { next_due_at: next } : {};
}

interface Keyed<T> {
  where(column: 'owner' | 'schedule_id', operator: '=', value: string): T;
  where(column: 'due_at', operator: '=', value: number): T;
}

function whereKey<T extends Keyed<T>>(query: T, { owner, scheduleId, dueAt }: RunKey): T {
  return query
    .where('owner', '=', owner)
    .where('schedule_id', '=', scheduleId)
    .where('due_at', '=', dueAt);
}
