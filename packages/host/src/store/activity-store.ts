import type { ActivityEntry } from '@sibyl/protocol';
import type { Kysely } from 'kysely';
import type { StoreContext } from './database.js';
import { prepareQuery } from './prepared-query.js';
import type { ActivityRow } from './schema/activity.js';
import type { Schema } from './schema/index.js';

interface ActivityQuery {
  readonly owner: string;
  readonly limit: number;
  /** The id of an entry: only older ones. */
  readonly before?: string | undefined;
  readonly sessionId?: string | undefined;
}

/** What happened on behalf of users: tool calls, approvals and changes of rules. */
export class ActivityStore {
  constructor(private readonly context: StoreContext) {}

  /** Newest first. */
  async list({
    owner,
    limit,
    before,
    sessionId,
  }: ActivityQuery): Promise<readonly ActivityEntry[]> {
    let query = this.context.database.tables
      .selectFrom('activity')
      .selectAll()
      .where('owner', '=', owner)
      .orderBy('id', 'desc')
      .limit(limit);
    if (before !== undefined) query = query.where('id', '<', before);
    if (sessionId !== undefined) query = query.where('session_id', '=', sessionId);
    return (await query.execute()).map(toEntry);
  }
}

type Fields =
  | 'session_id'
  | 'run_id'
  | 'approval_id'
  | 'call_id'
  | 'tool'
  | 'outcome'
  | 'decided_by';

/** Builds a row; what is not given is null. */
export function toActivityRow(
  row: Omit<ActivityRow, Fields> & Partial<Pick<ActivityRow, Fields>>,
): ActivityRow {
  return {
    session_id: null,
    run_id: null,
    approval_id: null,
    call_id: null,
    tool: null,
    outcome: null,
    decided_by: null,
    ...row,
  };
}

/** Inserts rows inside a unit of work; ignores those that are already stored. */
export async function insertActivity(
  tables: Kysely<Schema>,
  rows: readonly ActivityRow[],
): Promise<void> {
  for (const row of rows) await insertRow(tables, row);
}

const insertRow = prepareQuery((tables, row: ActivityRow) =>
  tables
    .insertInto('activity')
    .values(row)
    .onConflict((c) => c.columns(['owner', 'id']).doNothing()),
);

function toEntry(row: ActivityRow): ActivityEntry {
  const { session_id, run_id, approval_id, call_id, tool, outcome, decided_by } = row;
  return {
    id: row.id,
    kind: row.kind,
    at: new Date(row.created_at).toISOString(),
    ...(session_id !== null && { sessionId: session_id }),
    ...(run_id !== null && { runId: run_id }),
    ...(approval_id !== null && { approvalId: approval_id }),
    ...(call_id !== null && { toolCallId: call_id }),
    ...(tool !== null && { tool }),
    ...(outcome !== null && { outcome }),
    ...(decided_by !== null && { decidedBy: decided_by }),
  };
}
