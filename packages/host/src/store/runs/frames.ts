import type { Kysely } from 'kysely';
import { type FrameRow, prepareQuery, type Schema } from '../database.js';
import { ENDED, LIVE } from './run.js';

const FRAMES_PER_INSERT = 64;
const RUNS_PER_PRUNE = 100;

/** One frame of the log of a run; `seq` starts at 1 and has no gaps. */
export interface Frame {
  readonly seq: number;
  readonly event: string;
  /** JSON text, as it is sent to clients. */
  readonly data: string;
}

export interface RunKey {
  readonly owner: string;
  readonly runId: string;
}

/** Stores frames inside a unit of work; false if the owner has no such run or it has ended. */
export async function appendFrames(
  tables: Kysely<Schema>,
  { owner, runId, frames }: RunKey & { readonly frames: readonly Frame[] },
  now: number,
): Promise<boolean> {
  const { numAffectedRows } = await updateLastSeq(tables, {
    owner,
    runId,
    now,
    lastSeq: findLastSeq(frames),
  });
  if (numAffectedRows === 0n) return false;
  await insertFrames(tables, { owner, runId }, frames);
  return true;
}

export async function insertFrames(
  tables: Kysely<Schema>,
  { owner, runId }: RunKey,
  frames: readonly Frame[],
): Promise<void> {
  const rows = frames.map(({ seq, event, data }) => ({ run_id: runId, owner, seq, event, data }));
  for (let from = 0, size: number; from < rows.length; from += size) {
    // Powers of two, so that there are few different queries.
    size = 2 ** Math.floor(Math.log2(Math.min(rows.length - from, FRAMES_PER_INSERT)));
    await insertRows(tables, rows.slice(from, from + size));
  }
}

/** Ignores frames that are already stored: the response to an earlier attempt may have been lost. */
const insertRows = prepareQuery((tables, rows: readonly FrameRow[]) =>
  tables
    .insertInto('frames')
    .values(rows)
    .onConflict((c) => c.columns(['owner', 'run_id', 'seq']).doNothing()),
);

const updateLastSeq = prepareQuery(
  (tables, { owner, runId, now, lastSeq }: RunKey & { now: number; lastSeq: number | null }) =>
    tables
      .updateTable('runs')
      .set((e) => ({ updated_at: now, last_seq: e.fn.coalesce(e.val(lastSeq), 'last_seq') }))
      .where('id', '=', runId)
      .where('owner', '=', owner)
      .where('status', 'in', LIVE),
);

/** The number of the last of these frames; null when there are none. */
export const findLastSeq = (frames: readonly Frame[]): number | null => frames.at(-1)?.seq ?? null;

export async function readFrames(
  tables: Kysely<Schema>,
  request: RunKey & { readonly after: number },
): Promise<readonly Frame[]> {
  return (await selectFrames(tables, request)).rows;
}

const selectFrames = prepareQuery((tables, { owner, runId, after }: RunKey & { after: number }) =>
  tables
    .selectFrom('frames')
    .select(['seq', 'event', 'data'])
    .where('run_id', '=', runId)
    .where('owner', '=', owner)
    .where('seq', '>', after)
    .orderBy('seq'),
);

/** Deletes the frames of some runs that ended before `time`; returns how many runs, 0 when done. */
export async function pruneSomeFrames(tables: Kysely<Schema>, time: number): Promise<number> {
  const runs = await tables
    .selectFrom('runs')
    .select('id')
    .where('status', 'in', ENDED)
    .where('updated_at', '<', time)
    .where((e) => e.exists(e.selectFrom('frames').select('seq').whereRef('run_id', '=', 'runs.id')))
    .limit(RUNS_PER_PRUNE)
    .execute();
  if (runs.length === 0) return 0;
  const ids = runs.map(({ id }) => id);
  await tables.deleteFrom('frames').where('run_id', 'in', ids).execute();
  return runs.length;
}
