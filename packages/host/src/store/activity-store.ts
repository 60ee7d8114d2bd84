import type { Row, SelectedRow } from '@sibyl/plugin-kit/tables';
import type { ActivityEntry } from '@sibyl/protocol';
import type { Kysely } from 'kysely';
import { prepareQuery, type StoreContext } from './database.js';
import { type Activity, activity } from './schema/activity.js';
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

/** Stores what happened inside a unit of work; ignores what is already stored. */
export async function insertActivity(
  tables: Kysely<Schema>,
  entries: readonly Activity[],
): Promise<void> {
  for (const entry of entries) await insertRow(tables, activity.toRow(entry));
}

const insertRow = prepareQuery((tables, row: Row<typeof activity>) =>
  tables
    .insertInto('activity')
    .values(row)
    .onConflict((c) => c.columns(['owner', 'id']).doNothing()),
);

function toEntry(row: SelectedRow<typeof activity>): ActivityEntry {
  const { owner: _, createdAt, ...entry } = activity.toValues(row);
  return { ...entry, at: new Date(createdAt).toISOString() };
}
