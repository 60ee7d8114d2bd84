import { type Kysely, sql } from 'kysely';
import { insertActivity } from '../activity-store.js';
import { type Database, prepareQuery, type Unit } from '../database.js';
import type { Activity } from '../schema/activity.js';
import type { FrameChunkRow } from '../schema/frames.js';
import type { Schema } from '../schema/index.js';
import type { RunStepRow } from '../schema/run-steps.js';
import type { CancelReason, RunKey } from '../schema/runs.js';

const ROWS_PER_INSERT = 64;
/** Characters of frames in one row, at least; readers read whole rows. */
const CHUNK_LENGTH = 32 * 1024;

/** One frame of the log of a run; `seq` starts at 1 and rises by one. */
export interface Frame {
  readonly seq: number;
  readonly event: string;
  /** JSON text, as it is sent to clients. */
  readonly data: string;
}

/** What a host has to store of one run since its last flush. */
export interface RunWrites extends RunKey {
  readonly frames: readonly Frame[];
  /** Encrypted steps with their numbers. */
  readonly steps: readonly { readonly step: number; readonly data: string }[];
  /** Tool calls that have ended. */
  readonly activity?: readonly Activity[] | undefined;
}

/** What a host has to store of one run, before its steps are encrypted. */
export interface UnsealedWrites extends Omit<RunWrites, 'steps'> {
  readonly steps: readonly { readonly step: number; readonly value: unknown }[];
}

/** The result of a flush: which runs this host must stop. */
export interface FlushResult {
  /** Runs that ended elsewhere or that another host has taken over; nothing was stored for them. */
  readonly lost: readonly string[];
  readonly canceled: readonly { readonly runId: string; readonly reason: CancelReason }[];
}

interface FlushedRun {
  readonly id: string;
  readonly abort_requested: CancelReason | null;
}

/** Stores what several runs of a host wrote, in one unit of work. */
export async function flushRuns(
  database: Database,
  writes: readonly RunWrites[],
  host: { readonly hostId: string; readonly now: number },
): Promise<FlushResult> {
  const unit: Unit<readonly FlushedRun[]> = async (tables) => {
    const runs = await (database.engine === 'postgres' ? flushAtOnce : flushEach)(
      tables,
      writes,
      host,
    );
    const ours = new Set(runs.map(({ id }) => id));
    const kept = writes.filter(({ runId }) => ours.has(runId));
    for (const { activity } of kept) if (activity?.length) await insertActivity(tables, activity);
    return runs;
  };
  // The end of a run waits for its flush.
  const flushed = await database.write(unit, { isFirst: true });
  const known = new Set(flushed.map(({ id }) => id));
  return {
    lost: writes.map(({ runId }) => runId).filter((runId) => !known.has(runId)),
    canceled: flushed.flatMap(({ id: runId, abort_requested: reason }) =>
      reason ? [{ runId, reason }] : [],
    ),
  };
}

type Host = { readonly hostId: string; readonly now: number };

async function flushEach(
  tables: Kysely<Schema>,
  writes: readonly RunWrites[],
  { hostId, now }: Host,
): Promise<readonly FlushedRun[]> {
  const flushed: FlushedRun[] = [];
  const chunks: FrameChunkRow[] = [];
  const steps: RunStepRow[] = [];
  for (const { owner, runId, ...added } of writes) {
    const lastSeq = added.frames.at(-1)?.seq ?? null;
    const { rows } = await touchRun(tables, { owner, runId, hostId, now, lastSeq });
    if (rows[0] === undefined) continue;
    flushed.push(rows[0]);
    chunks.push(...toChunks({ owner, runId }, added.frames));
    for (const { step, data } of added.steps)
      steps.push({ owner, run_id: runId, step, data, created_at: now });
  }
  await insertInBatches(tables, chunks, insertChunks);
  await insertInBatches(tables, steps, insertSteps);
  return flushed;
}

const touchRun = prepareQuery(
  (
    tables,
    { owner, runId, hostId, now, lastSeq }: RunKey & Host & { readonly lastSeq: number | null },
  ) =>
    tables
      .updateTable('runs')
      .set((e) => ({ updated_at: now, last_seq: e.fn.coalesce(e.val(lastSeq), 'last_seq') }))
      .where('owner', '=', owner)
      .where('id', '=', runId)
      .where('host_id', '=', hostId)
      .where(sql<boolean>`status in ('queued', 'running')`)
      .returning(['id', 'abort_requested']),
);

/** One statement for all runs: a statement per run costs ten times as much. */
async function flushAtOnce(
  tables: Kysely<Schema>,
  writes: readonly RunWrites[],
  { hostId, now }: Host,
): Promise<readonly FlushedRun[]> {
  const chunks = writes.flatMap((write) => toChunks(write, write.frames));
  const steps = writes.flatMap(({ owner, runId, steps: list }) =>
    list.map((step) => ({ owner, runId, ...step })),
  );
  const { rows } = await sql<FlushedRun>`
    with written (owner, run_id, last_seq) as (
      select * from unnest(
        ${writes.map(({ owner }) => owner)}::text[],
        ${writes.map(({ runId }) => runId)}::text[],
        ${writes.map(({ frames }) => frames.at(-1)?.seq ?? null)}::bigint[])
    ), flushed as (
      update runs r
      set updated_at = ${now}, last_seq = coalesce(w.last_seq, r.last_seq)
      from written w
      where r.owner = w.owner and r.id = w.run_id
        and r.host_id = ${hostId} and r.status in ('queued', 'running')
      returning r.owner, r.id, r.abort_requested
    ), new_frames as (
      insert into frames (owner, run_id, seq, lines)
      select f.* from unnest(
        ${chunks.map(({ owner }) => owner)}::text[],
        ${chunks.map(({ run_id }) => run_id)}::text[],
        ${chunks.map(({ seq }) => seq)}::bigint[],
        ${chunks.map(({ lines }) => lines)}::text[]) as f (owner, run_id, seq, lines)
      join flushed on flushed.owner = f.owner and flushed.id = f.run_id
      on conflict do nothing
    ), new_steps as (
      insert into run_steps (owner, run_id, step, data, created_at)
      select s.owner, s.run_id, s.step, s.data, ${now}::bigint from unnest(
        ${steps.map(({ owner }) => owner)}::text[],
        ${steps.map(({ runId }) => runId)}::text[],
        ${steps.map(({ step }) => step)}::bigint[],
        ${steps.map(({ data }) => data)}::text[]) as s (owner, run_id, step, data)
      join flushed on flushed.owner = s.owner and flushed.id = s.run_id
      on conflict do nothing
    )
    select id, abort_requested from flushed`.execute(tables);
  return rows;
}

export function insertFrames(
  tables: Kysely<Schema>,
  key: RunKey,
  frames: readonly Frame[],
): Promise<void> {
  return insertInBatches(tables, toChunks(key, frames), insertChunks);
}

/** Consecutive frames share a row, which costs a fraction of a row for each. */
function toChunks({ owner, runId }: RunKey, frames: readonly Frame[]): FrameChunkRow[] {
  const chunks: FrameChunkRow[] = [];
  let lines: string[] = [];
  let length = 0;
  for (const [i, { seq, event, data }] of frames.entries()) {
    const line = `${event} ${data}`;
    lines.push(line);
    length += line.length;
    if (frames[i + 1]?.seq === seq + 1 && length < CHUNK_LENGTH) continue;
    chunks.push({ owner, run_id: runId, seq, lines: lines.join('\n') });
    lines = [];
    length = 0;
  }
  return chunks;
}

function toFrames({ seq, lines }: Pick<FrameChunkRow, 'seq' | 'lines'>): Frame[] {
  const list = lines.split('\n');
  return list.map((line, i) => {
    const space = line.indexOf(' ');
    const event = line.slice(0, space);
    return { seq: seq - list.length + 1 + i, event, data: line.slice(space + 1) };
  });
}

/** In powers of two, so that there are few different queries. */
async function insertInBatches<R>(
  tables: Kysely<Schema>,
  rows: readonly R[],
  insert: (tables: Kysely<Schema>, batch: readonly R[]) => Promise<unknown>,
): Promise<void> {
  for (let from = 0, size: number; from < rows.length; from += size) {
    size = 2 ** Math.floor(Math.log2(Math.min(rows.length - from, ROWS_PER_INSERT)));
    await insert(tables, rows.slice(from, from + size));
  }
}

/** Ignores rows that are already stored: the reply to an earlier attempt may have been lost. */
const insertChunks = prepareQuery((tables, rows: readonly FrameChunkRow[]) =>
  tables
    .insertInto('frames')
    .values(rows)
    .onConflict((c) => c.columns(['owner', 'run_id', 'seq']).doNothing()),
);

export const insertSteps = prepareQuery((tables, rows: readonly RunStepRow[]) =>
  tables
    .insertInto('run_steps')
    .values(rows)
    .onConflict((c) => c.columns(['owner', 'run_id', 'step']).doNothing()),
);

/** How many rows and bytes a reader has in memory at a time. */
const PAGE_ROWS = 512;
const PAGE_BYTES = 256 * 1024;

interface FramesRequest extends RunKey {
  readonly after: number;
}

/** A page of the stored frames after a number: at least one if there is one. */
export async function readFramePage(
  tables: Kysely<Schema>,
  request: FramesRequest,
): Promise<readonly Frame[]> {
  const { rows: sizes } = await selectSizes(tables, request);
  let bytes = 0;
  let last: number | undefined;
  for (const { seq, size } of sizes) {
    if (last !== undefined && bytes + size > PAGE_BYTES) break;
    bytes += size;
    last = seq;
  }
  if (last === undefined) return [];
  const { rows } = await selectChunks(tables, { ...request, last });
  return pickAfter(rows.flatMap(toFrames), request.after);
}

/** Each frame once: after the reply to a flush was lost, its frames may be in two rows. */
function pickAfter(frames: readonly Frame[], after: number): Frame[] {
  const picked: Frame[] = [];
  for (const frame of frames) if (frame.seq > (picked.at(-1)?.seq ?? after)) picked.push(frame);
  return picked;
}

const selectSizes = prepareQuery((tables, { owner, runId, after }: FramesRequest) =>
  tables
    .selectFrom('frames')
    .select(['seq', sql<number>`octet_length(lines)`.as('size')])
    .where('owner', '=', owner)
    .where('run_id', '=', runId)
    .where('seq', '>', after)
    .orderBy('seq')
    .limit(PAGE_ROWS),
);

const selectChunks = prepareQuery(
  (tables, { owner, runId, after, last }: FramesRequest & { last: number }) =>
    tables
      .selectFrom('frames')
      .select(['seq', 'lines'])
      .where('owner', '=', owner)
      .where('run_id', '=', runId)
      .where('seq', '>', after)
      .where('seq', '<=', last)
      .orderBy('seq'),
);
