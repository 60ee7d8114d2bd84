import { randomUUID } from 'node:crypto';
import { type DatabaseEngine, OracleError, type PluginDatabase } from '@sibyl/plugin-kit';
import { bigint, defineTable, type Row, type TableTypes, text } from '@sibyl/plugin-kit/tables';
import type {
  CreateSchedule,
  Schedule,
  ScheduleRun,
  ScheduleTerms,
  ScheduleTrigger,
} from '@sibyl/protocol';
import { type Kysely, sql } from 'kysely';
import { findFirstDue } from './timing.js';

/** Runs of a schedule that are kept. */
const KEPT_RUNS = 100;

export interface ScheduleKey {
  readonly owner: string;
  readonly id: string;
}

interface SharedRead {
  readonly current: Promise<ScheduleRow | undefined>;
  /** Begins once the current read has ended, for all who came while it was in progress. */
  next?: Promise<ScheduleRow | undefined>;
}

/** What a user or the host changes. */
export type ScheduleChange = Partial<
  Omit<ScheduleRow, 'owner' | 'id' | 'created_at' | 'updated_at'>
>;

/** Schedules of users. All times are those of the database, in milliseconds. */
export class ScheduleStore {
  /** The read of a schedule that is in progress, and the one after it. */
  private readonly reads = new Map<string, SharedRead>();

  constructor(private readonly database: PluginDatabase<ScheduleTables>) {}

  now(): Promise<number> {
    return readTime(this.database.tables, this.database.engine);
  }

  /** Stores a new schedule; throws if the user has `limit` already, or one with this id. */
  create(
    { owner, ...wanted }: NewSchedule & { readonly owner: string },
    limit: number,
  ): Promise<ScheduleRow> {
    return this.database.writeFor(owner, async (tables) => {
      const existing = await tables
        .selectFrom('schedules_schedules')
        .select('id')
        .where('owner', '=', owner)
        .execute();
      const id = wanted.id ?? randomUUID();
      assertFits(existing, id, limit);
      const now = await readTime(tables, this.database.engine);
      const row = toRow({ ...wanted, owner, id }, now);
      await tables.insertInto('schedules_schedules').values(row).execute();
      return row;
    });
  }

  /** Newest first. */
  list(owner: string): Promise<readonly ScheduleRow[]> {
    return this.database.tables
      .selectFrom('schedules_schedules')
      .selectAll()
      .where('owner', '=', owner)
      .orderBy('created_at', 'desc')
      .orderBy('id')
      .execute();
  }

  /** Many callers at once, such as those of a webhook, take one connection: they share the read that begins next. */
  async find(key: ScheduleKey): Promise<ScheduleRow | undefined> {
    const name = JSON.stringify([key.owner, key.id]);
    const start = () => this.startRead(name, key);
    const read = this.reads.get(name);
    if (!read) return start();
    read.next ??= read.current.then(start, start);
    return read.next;
  }

  private startRead(name: string, key: ScheduleKey): Promise<ScheduleRow | undefined> {
    const current = this.read(key).finally(() => {
      if (!read.next) this.reads.delete(name);
    });
    const read: SharedRead = { current };
    this.reads.set(name, read);
    return current;
  }

  private read({ owner, id }: ScheduleKey): Promise<ScheduleRow | undefined> {
    return this.database.tables
      .selectFrom('schedules_schedules')
      .selectAll()
      .where('owner', '=', owner)
      .where('id', '=', id)
      .executeTakeFirst();
  }

  async get(key: ScheduleKey): Promise<ScheduleRow> {
    const row = await this.find(key);
    if (!row) throw new OracleError('schedule_not_found');
    return row;
  }

  /** Changes a schedule as `decide` says; throws if there is none. */
  change(
    key: ScheduleKey,
    decide: (row: ScheduleRow, now: number) => ScheduleChange,
  ): Promise<ScheduleRow> {
    return this.database.writeFor(key.owner, async (tables) => {
      const now = await readTime(tables, this.database.engine);
      const row = await this.lockRow(tables, key);
      if (!row) throw new OracleError('schedule_not_found');
      const changed = { ...row, ...decide(row, now), updated_at: now };
      await tables
        .updateTable('schedules_schedules')
        .set(changed)
        .where('owner', '=', key.owner)
        .where('id', '=', key.id)
        .execute();
      return changed;
    });
  }

  /** Ends a schedule that is active; undefined if it is not, or another host was faster. */
  stop({ owner, id }: ScheduleKey, reason: string): Promise<ScheduleRow | undefined> {
    return this.database.writeFor(owner, async (tables) =>
      tables
        .updateTable('schedules_schedules')
        .set({ status: 'stopped', reason, next_due_at: null })
        .where('owner', '=', owner)
        .where('id', '=', id)
        .where('status', 'in', ['active', 'paused'])
        .returningAll()
        .executeTakeFirst(),
    );
  }

  remove({ owner, id }: ScheduleKey): Promise<ScheduleRow | undefined> {
    return this.database.writeFor(owner, async (tables) => {
      await tables
        .deleteFrom('schedules_runs')
        .where('owner', '=', owner)
        .where('schedule_id', '=', id)
        .execute();
      return tables
        .deleteFrom('schedules_schedules')
        .where('owner', '=', owner)
        .where('id', '=', id)
        .returningAll()
        .executeTakeFirst();
    });
  }

  /** The active schedules that run under a delegation. */
  listByDelegation(cid: string): Promise<readonly ScheduleRow[]> {
    return this.database.tables
      .selectFrom('schedules_schedules')
      .selectAll()
      .where('delegation_cid', '=', cid)
      .where('status', 'in', ['active', 'paused'])
      .execute();
  }

  /** Some active schedules whose delegation has expired. */
  listExpired(now: number): Promise<readonly ScheduleRow[]> {
    return this.database.tables
      .selectFrom('schedules_schedules')
      .selectAll()
      .where('status', 'in', ['active', 'paused'])
      .where('delegation_expires_at', '<=', now)
      .limit(50)
      .execute();
  }

  /** A page of active schedules, for checks of their delegations. */
  listActive(after: ScheduleKey): Promise<readonly ScheduleRow[]> {
    return this.database.tables
      .selectFrom('schedules_schedules')
      .selectAll()
      .where('status', 'in', ['active', 'paused'])
      .where((e) => e(e.refTuple('owner', 'id'), '>', e.tuple(after.owner, after.id)))
      .orderBy('owner')
      .orderBy('id')
      .limit(200)
      .execute();
  }

  /** Newest first. */
  async listRuns({
    owner,
    id,
    limit,
  }: ScheduleKey & { readonly limit: number }): Promise<readonly RunRow[]> {
    return this.database.tables
      .selectFrom('schedules_runs')
      .selectAll()
      .where('owner', '=', owner)
      .where('schedule_id', '=', id)
      .orderBy('due_at', 'desc')
      .limit(limit)
      .execute();
  }

  async pruneRuns(key: ScheduleKey): Promise<void> {
    await this.database.write((tables) => pruneRuns(tables, key));
  }

  private lockRow(tables: Tables, { owner, id }: ScheduleKey): Promise<ScheduleRow | undefined> {
    const query = tables
      .selectFrom('schedules_schedules')
      .selectAll()
      .where('owner', '=', owner)
      .where('id', '=', id);
    return (this.database.engine === 'postgres' ? query.forUpdate() : query).executeTakeFirst();
  }
}

/** Deletes all but the newest runs that have ended and whose results are delivered. */
export async function pruneRuns(tables: Tables, { owner, id }: ScheduleKey): Promise<void> {
  const oldest = await tables
    .selectFrom('schedules_runs')
    .select('due_at')
    .where('owner', '=', owner)
    .where('schedule_id', '=', id)
    .orderBy('due_at', 'desc')
    .offset(KEPT_RUNS - 1)
    .limit(1)
    .executeTakeFirst();
  if (!oldest) return;
  await tables
    .deleteFrom('schedules_runs')
    .where('owner', '=', owner)
    .where('schedule_id', '=', id)
    .where('due_at', '<', oldest.due_at)
    .where('check_at', 'is', null)
    .where('deliver_at', 'is', null)
    .execute();
}

/** Throws if a user with these schedules cannot have one more with this id. */
export function assertFits(
  existing: readonly { readonly id: string }[],
  id: string,
  limit: number,
): void {
  if (existing.some((other) => other.id === id))
    throw new OracleError('validation_failed', { message: ['id: you have such a schedule'] });
  if (existing.length >= limit) throw new OracleError('too_many_schedules');
}

/** The time of the database, which all hosts share; with SQLite there is one host. */
export async function readTime(tables: Tables, engine: DatabaseEngine): Promise<number> {
  if (engine === 'sqlite') return Date.now();
  const { rows } = await sql<{
    now: string;
  }>`select floor(extract(epoch from clock_timestamp()) * 1000) as now`.execute(tables);
  return Number(rows[0]?.now);
}

/** What `create` stores. */
export interface NewSchedule
  extends Pick<
    CreateSchedule,
    'id' | 'name' | 'message' | 'trigger' | 'catchUp' | 'resultUrl' | 'resultTo'
  > {
  readonly sessionId: string;
  readonly delegation?: { readonly cid: string; readonly expiration?: number } | undefined;
  readonly secretHash?: string | undefined;
}

function toRow(wanted: NewSchedule & ScheduleKey, now: number): ScheduleRow {
  const { owner, id, name, message, trigger, catchUp, sessionId, delegation } = wanted;
  return {
    owner,
    id,
    name,
    message,
    trigger: JSON.stringify(trigger),
    catch_up: catchUp,
    status: delegation ? 'active' : 'unauthorized',
    reason: null,
    session_id: sessionId,
    next_due_at: delegation ? findFirstDue(trigger, now) : null,
    failures: 0,
    delegation_cid: delegation?.cid ?? null,
    delegation_expires_at: toExpiry(delegation),
    result_url: wanted.resultUrl ?? null,
    result_to: wanted.resultTo ?? null,
    secret_hash: wanted.secretHash ?? null,
    created_at: now,
    updated_at: now,
  };
}

export const toExpiry = (
  delegation: { readonly expiration?: number } | undefined,
): number | null => (delegation?.expiration === undefined ? null : delegation.expiration * 1000);

export const readTrigger = (row: Pick<ScheduleRow, 'trigger'>): ScheduleTrigger =>
  JSON.parse(row.trigger);

/** What the user signs of a schedule. */
export const toTerms = (row: ScheduleRow): ScheduleTerms => ({
  message: row.message,
  trigger: readTrigger(row),
  resultUrl: row.result_url,
  resultTo: row.result_to,
});

export function toScheduleRun(row: RunRow): ScheduleRun {
  return {
    dueAt: toTimestamp(row.due_at),
    cause: row.cause,
    status: row.status,
    ...(row.run_id !== null && { runId: row.run_id }),
    ...(row.error !== null && { error: row.error }),
    ...(row.ended_at !== null && { endedAt: toTimestamp(row.ended_at) }),
    ...(row.delivery !== null && {
      delivery: {
        status: row.delivery,
        attempts: row.delivery_attempts,
        ...(row.delivery_error !== null && { error: row.delivery_error }),
      },
    }),
  };
}

export const toTimestamp = (ms: number): string => new Date(ms).toISOString();

export const schedules = defineTable(
  'schedules_schedules',
  {
    owner: text(),
    id: text(),
    name: text(),
    message: text(),
    /** JSON. */
    trigger: text(),
    catch_up: text<'skip' | 'once'>(),
    status: text<Schedule['status']>(),
    reason: text().optional(),
    session_id: text(),
    next_due_at: bigint().optional(),
    failures: bigint(),
    delegation_cid: text().optional(),
    delegation_expires_at: bigint().optional(),
    result_url: text().optional(),
    /** The address of a chat, instead of `result_url`. */
    result_to: text().optional(),
    /** SHA-256 of the webhook's secret, in base64. */
    secret_hash: text().optional(),
    created_at: bigint(),
    updated_at: bigint(),
  },
  {
    key: ['owner', 'id'],
    // Hosts look for what is due of all users; rows with nothing due are not in these indexes.
    indexes: {
      schedules_by_due: { on: ['next_due_at'], where: 'next_due_at is not null' },
      schedules_by_expiry: {
        on: ['delegation_expires_at'],
        where: 'delegation_expires_at is not null',
      },
      schedules_by_delegation: { on: ['delegation_cid'], where: 'delegation_cid is not null' },
    },
  },
);

export type ScheduleRow = Row<typeof schedules>;

/** The due times that were claimed: the key makes a second run of the same time impossible. */
export const scheduleRuns = defineTable(
  'schedules_runs',
  {
    owner: text(),
    schedule_id: text(),
    due_at: bigint(),
    cause: text<ScheduleRun['cause']>(),
    status: text<ScheduleRun['status']>(),
    /** What a webhook delivered, marked as that; null once it has ended, and of other runs. */
    data: text().optional(),
    session_id: text(),
    run_id: text().optional(),
    attempts: bigint(),
    error: text().optional(),
    /** When any host looks at it next; null once it has ended. */
    check_at: bigint().optional(),
    ended_at: bigint().optional(),
    delivery: text<'pending' | 'delivered' | 'failed'>().optional(),
    delivery_attempts: bigint(),
    delivery_error: text().optional(),
    /** When any host delivers the result next; null if there is nothing to deliver. */
    deliver_at: bigint().optional(),
  },
  {
    key: ['owner', 'schedule_id', 'due_at'],
    indexes: {
      schedules_runs_by_check: { on: ['check_at'], where: 'check_at is not null' },
      schedules_runs_by_delivery: { on: ['deliver_at'], where: 'deliver_at is not null' },
    },
  },
);

export type RunRow = Row<typeof scheduleRuns>;

/** The plugin's tables; times are milliseconds. */
export const tables = [schedules, scheduleRuns] as const;

export type ScheduleTables = TableTypes<typeof tables>;

export type Tables = Kysely<ScheduleTables>;
