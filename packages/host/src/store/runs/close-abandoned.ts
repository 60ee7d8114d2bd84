import type { Kysely } from 'kysely';
import type { Schema } from '../database/schema.js';
import type { StoreContext } from '../database/store-context.js';
import { type EndedRun, finishRun, type RunEnding } from './finish-run.js';
import { type Frame, readFrames } from './frames.js';
import type { HostProcess } from './host-process.js';
import { LIVE, type Run, toRun } from './run.js';

/** Says how a run that was cut off ends, from what its log still holds. */
export type EndAbandoned = (run: Run, frames: readonly Frame[]) => RunEnding;

interface Abandoned {
  readonly id: string;
  readonly hostId: string;
  readonly leaseUntil: number;
}

/** Live runs whose process is known to be dead or has not renewed its lease in time. */
export async function findAbandoned(
  tables: Kysely<Schema>,
  host: HostProcess,
  isOver: (leaseUntil: number) => boolean,
): Promise<readonly Abandoned[]> {
  const live = await tables
    .selectFrom('runs')
    .select(['id', 'host_id as hostId', 'lease_until as leaseUntil'])
    .where('status', 'in', LIVE)
    .where('host_id', '!=', host.id)
    .execute();
  return live.filter(({ hostId, leaseUntil }) => isOver(leaseUntil) || host.isKnownDead(hostId));
}

/** Ends one of them inside a unit; undefined if its process came back or another closed it first. */
export async function closeAbandoned(
  tables: Kysely<Schema>,
  { abandoned, end }: { abandoned: Abandoned; end: EndAbandoned },
  context: StoreContext,
): Promise<EndedRun | undefined> {
  const row = await tables
    .selectFrom('runs')
    .selectAll()
    .where('id', '=', abandoned.id)
    .where('host_id', '=', abandoned.hostId)
    .where('lease_until', '=', abandoned.leaseUntil)
    .executeTakeFirst();
  if (row === undefined) return undefined;
  const run = toRun(row);
  const key = { owner: run.owner, runId: run.id };
  const ending = end(run, await readFrames(tables, { ...key, after: 0 }));
  return finishRun(tables, { ...key, ending }, context);
}
