import type { Kysely } from 'kysely';
import type { RunRow, Schema } from '../database/schema.js';
import { ENDED, LIVE } from './run.js';

const FRAMES_PER_INSERT = 200;
const RUNS_PER_PRUNE = 100;

/** One frame of a run's log; `seq` starts at 1 and rises by one. */
export interface Frame {
  readonly seq: number;
  readonly event: string;
  /** JSON text, as it goes on the wire. */
  readonly data: string;
}

export interface RunKey {
  readonly owner: string;
  readonly runId: string;
}

/** Stores frames inside a unit; false if the owner has no such run or it has ended. */
export async function appendFrames(
  tables: Kysely<Schema>,
  { owner, runId, frames }: RunKey & { readonly frames: readonly Frame[] },
  now: number,
): Promise<boolean> {
  const { numUpdatedRows } = await tables
    .updateTable('runs')
    .set({ updated_at: now, ...lastSeqOf(frames) })
    .where('id', '=', runId)
    .where('owner', '=', owner)
    .where('status', 'in', LIVE)
    .executeTakeFirstOrThrow();
  if (numUpdatedRows === 0n) return false;
  await insertFrames(tables, { owner, runId }, frames);
  return true;
}

export async function insertFrames(
  tables: Kysely<Schema>,
  { owner, runId }: RunKey,
  frames: readonly Frame[],
): Promise<void> {
  for (let from = 0; from < frames.length; from += FRAMES_PER_INSERT) {
    const rows = frames
      .slice(from, from + FRAMES_PER_INSERT)
      .map(({ seq, event, data }) => ({ run_id: runId, owner, seq, event, data }));
    await tables.insertInto('run_frames').values(rows).execute();
  }
}

/** The `last_seq` a run has after these frames; nothing when there are none. */
export function lastSeqOf(frames: readonly Frame[]): Partial<Pick<RunRow, 'last_seq'>> {
  const last = frames.at(-1);
  return last === undefined ? {} : { last_seq: last.seq };
}

export async function readFrames(
  tables: Kysely<Schema>,
  { owner, runId, after }: RunKey & { readonly after: number },
): Promise<readonly Frame[]> {
  return tables
    .selectFrom('run_frames')
    .select(['seq', 'event', 'data'])
    .where('run_id', '=', runId)
    .where('owner', '=', owner)
    .where('seq', '>', after)
    .orderBy('seq')
    .execute();
}

/** Drops the frames of some runs that ended before `time`; returns how many runs, 0 when done. */
export async function pruneSomeFrames(tables: Kysely<Schema>, time: number): Promise<number> {
  const runs = await tables
    .selectFrom('runs')
    .select('id')
    .where('status', 'in', ENDED)
    .where('updated_at', '<', time)
    .where((e) =>
      e.exists(e.selectFrom('run_frames').select('seq').whereRef('run_id', '=', 'runs.id')),
    )
    .limit(RUNS_PER_PRUNE)
    .execute();
  if (runs.length === 0) return 0;
  const ids = runs.map(({ id }) => id);
  await tables.deleteFrom('run_frames').where('run_id', 'in', ids).execute();
  return runs.length;
}
