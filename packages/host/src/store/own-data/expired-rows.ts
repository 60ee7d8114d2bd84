import { setImmediate as nextTick } from 'node:timers/promises';
import { type Kysely, type RawBuilder, sql } from 'kysely';
import type { SessionKey } from '../../bus/event-bus.js';
import type { Database, StoreContext } from '../database.js';
import type { Schema } from '../schema/index.js';
import { ENDED } from '../schema/runs.js';
import { forgetArguments } from '../session-store.js';
import { keepUsage } from '../usage-store.js';

/** Rows that one query looks at: each one blocks the event loop on SQLite. */
const ROWS_PER_PAGE = 1000;
const PAUSED_PER_PAGE = 100;

/** What RETENTION_DAYS deletes. */
interface RetentionRule {
  readonly table: 'sessions' | 'approvals' | 'activity';
  /** The column with the time that counts, in milliseconds. */
  readonly time: string;
  /** Which rows, besides their age. */
  readonly only: RawBuilder<boolean>;
}

/** A session with a turn that runs or is queued is in use; one that waits for an answer is not. */
const isIdle = sql<boolean>`not exists (select 1 from runs where runs.owner = sessions.owner
  and runs.session_id = sessions.id and runs.status in ('queued', 'running'))`;

const RULES = {
  sessions: { table: 'sessions', time: 'last_updated_at', only: isIdle },
  receipts: { table: 'approvals', time: 'expires_at', only: sql<boolean>`1 = 1` },
  activity: { table: 'activity', time: 'created_at', only: sql<boolean>`1 = 1` },
} as const satisfies Record<string, RetentionRule>;

export type Expiring = keyof typeof RULES;

interface RowKey {
  readonly owner: string;
  readonly id: string;
}

/** Finds and deletes what is older than the operator keeps. */
export class ExpiredRows {
  constructor(private readonly context: StoreContext) {}

  /** Pages of expired rows. Reads the whole table in small pages: an index by time would cost every turn a write. */
  async *find(kind: Expiring, before: number): AsyncGenerator<readonly RowKey[]> {
    const { table, time, only } = RULES[kind];
    for (let after: RowKey = { owner: '', id: '' }; ; ) {
      const { rows } = await sql<RowKey & { expired: number | boolean }>`select owner, id,
          case when ${sql.ref(time)} < ${before} and ${only} then 1 else 0 end as expired
        from ${sql.table(table)} where (owner, id) > (${after.owner}, ${after.id})
        order by owner, id limit ${ROWS_PER_PAGE}`.execute(this.context.database.tables);
      const expired = rows.filter((row) => Number(row.expired) === 1);
      if (expired.length > 0) yield expired;
      const last = rows.at(-1);
      if (!last || rows.length < ROWS_PER_PAGE) return;
      after = last;
    }
  }

  /** Some sessions with a turn that has waited for an answer since before a time. */
  async findPaused(before: number): Promise<readonly SessionKey[]> {
    const { rows } = await sql<SessionKey>`select owner, session_id as "sessionId" from runs
      where status in ('queued', 'running', 'paused') and status = 'paused'
        and updated_at < ${before} limit ${PAUSED_PER_PAGE}`.execute(this.context.database.tables);
    return rows;
  }

  async countPaused(before: number): Promise<number> {
    const { rows } = await sql<{ count: number }>`select count(*) as count from runs
      where status in ('queued', 'running', 'paused') and status = 'paused'
        and updated_at < ${before}`.execute(this.context.database.tables);
    return Number(rows[0]?.count ?? 0);
  }

  /** Deletes a row that is still expired; returns whether it was. */
  async delete(kind: Expiring, { owner, id }: RowKey, before: number): Promise<boolean> {
    const { table, time, only } = RULES[kind];
    try {
      await this.context.database.writeFor(owner, async (tables) => {
        if (kind === 'sessions') {
          await keepUsage(tables, { owner, sessionId: id });
          await forgetArguments(tables, { owner, sessionId: id });
        }
        const { numAffectedRows } = await sql`delete from ${sql.table(table)}
          where owner = ${owner} and id = ${id} and ${sql.ref(time)} < ${before} and ${only}`.execute(
          tables,
        );
        if (Number(numAffectedRows ?? 0) === 0) throw new NotExpiredError();
      });
      return true;
    } catch (error) {
      if (error instanceof NotExpiredError) return false;
      throw error;
    }
  }

  /** Runs a task unless another host is running one; that of a host that died ends by itself. */
  async alone(task: () => Promise<void>): Promise<void> {
    const { database, clock } = this.context;
    const claimed = await database.write((tables) => claim(tables, clock()));
    if (!claimed) return;
    try {
      await task();
    } finally {
      // Unless it took so long that another host has claimed it.
      await database.write((tables) =>
        tables
          .deleteFrom('database_info')
          .where('key', '=', CLAIM)
          .where('value', '=', claimed.value)
          .execute(),
      );
    }
  }
}

/** Rolls back the unit of work, and with it the usage that it keeps of a session. */
class NotExpiredError extends Error {}

const CLAIM = 'retention';
const CLAIM_MS = 60 * 60 * 1000;

async function claim(
  tables: Kysely<Schema>,
  now: number,
): Promise<{ readonly value: string } | undefined> {
  const value = String(now + CLAIM_MS);
  return tables
    .insertInto('database_info')
    .values({ key: CLAIM, value })
    .onConflict((c) =>
      c
        .column('key')
        .doUpdateSet({ value })
        .where(sql<boolean>`cast(database_info.value as bigint) < ${now}`),
    )
    .returning('value')
    .executeTakeFirst();
}

const LOGS_PER_PAGE = 100;

/**
 * Deletes frames and remaining steps of runs that ended before `time`. It begins with the frames, because few runs still
 * have any, and in pages, so that other writers do not wait long.
 */
export async function pruneFrames(database: Database, time: number): Promise<void> {
  for (let after: RowKey = { owner: '', id: '' }; ; ) {
    const logs = await listLogs(database.tables, after, time);
    const expired = logs.filter((log) => Number(log.expired) === 1);
    if (expired.length > 0) await database.write((tables) => deleteLogs(tables, expired));
    const last = logs.at(-1);
    if (!last || logs.length < LOGS_PER_PAGE) return;
    after = last;
    await nextTick();
  }
}

/** Runs that have frames, and whether they ended before `time`. */
async function listLogs(tables: Kysely<Schema>, after: RowKey, time: number) {
  const { rows } = await sql<RowKey & { expired: number }>`select logs.owner, logs.run_id as id,
      case when runs.status in (${sql.join(ENDED)}) and runs.updated_at < ${time} then 1 else 0 end
        as expired
    from (select distinct owner, run_id from frames
      where (owner, run_id) > (${after.owner}, ${after.id})
      order by owner, run_id limit ${LOGS_PER_PAGE}) as logs
    left join runs on runs.owner = logs.owner and runs.id = logs.run_id
    order by logs.owner, logs.run_id`.execute(tables);
  return rows;
}

async function deleteLogs(tables: Kysely<Schema>, runs: readonly RowKey[]): Promise<void> {
  for (const { owner, id } of runs)
    for (const table of ['frames', 'run_steps'] as const)
      await tables.deleteFrom(table).where('owner', '=', owner).where('run_id', '=', id).execute();
}
