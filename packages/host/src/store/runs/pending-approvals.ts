import type { Kysely } from 'kysely';
import type { SessionKey } from '../../bus/event-bus.js';
import { insertActivity } from '../activity-store.js';
import type { StoreContext } from '../database.js';
import type { ApprovalRow } from '../schema/approvals.js';
import type { Schema } from '../schema/index.js';
import type { RunKey } from '../schema/runs.js';

/** What is stored of an approval beside its run; `request` is encrypted. */
export type NewApproval = Pick<
  ApprovalRow,
  'call' | 'call_id' | 'tool' | 'plugin' | 'args_hash' | 'required_by' | 'request'
>;

/** Stores an approval inside the unit of work that pauses its run. */
export async function insertApproval(
  tables: Kysely<Schema>,
  { owner, sessionId, runId }: SessionKey & RunKey,
  approval: NewApproval & Pick<ApprovalRow, 'id' | 'created_at' | 'expires_at'>,
  newId: () => string,
): Promise<void> {
  const { id: approval_id, call_id, tool, created_at } = approval;
  const place = { owner, session_id: sessionId, run_id: runId };
  const undecided = { decision: null, decided_at: null, answer: null, receipt: null };
  await tables
    .insertInto('approvals')
    .values({ ...place, ...approval, ...undecided })
    .execute();
  await insertActivity(tables, [
    {
      ...{ owner, id: newId(), kind: 'approval_requested', createdAt: created_at },
      ...{ sessionId, runId, approvalId: approval_id, toolCallId: call_id, tool },
    },
  ]);
}

interface ApprovalsEnd {
  readonly owner: string;
  /** Ids of interrupts; those that are not approvals are ignored. */
  readonly ids: readonly string[];
  readonly outcome: 'approved' | 'denied' | 'expired' | 'cancelled';
  readonly by: 'signature' | 'request' | 'host';
}

/** Records the end of approvals inside the unit of work that ends them. */
export async function recordEnd(
  tables: Kysely<Schema>,
  { owner, ids, outcome, by }: ApprovalsEnd,
  { clock, newId }: Pick<StoreContext, 'clock' | 'newId'>,
): Promise<void> {
  if (ids.length === 0) return;
  const rows = await tables
    .selectFrom('approvals')
    .select([
      'id as approvalId',
      'session_id as sessionId',
      'run_id as runId',
      'call_id as toolCallId',
      'tool',
    ])
    .where('owner', '=', owner)
    .where('id', 'in', ids)
    .execute();
  const end = { kind: 'approval_decided', outcome, decidedBy: by, createdAt: clock() } as const;
  await insertActivity(
    tables,
    rows.map((row) => ({ owner, id: newId(), ...row, ...end })),
  );
}

/** Forgets the arguments and reasons of unsigned approvals of a session that is being deleted; what became of them stays. */
export async function forgetArguments(
  tables: Kysely<Schema>,
  { owner, sessionId }: SessionKey,
): Promise<void> {
  await tables
    .updateTable('approvals')
    .set({ request: '', answer: null })
    .where('owner', '=', owner)
    .where('run_id', 'in', (e) =>
      e
        .selectFrom('runs')
        .select('id')
        .where('owner', '=', owner)
        .where('session_id', '=', sessionId),
    )
    .where('receipt', 'is', null)
    .execute();
}
