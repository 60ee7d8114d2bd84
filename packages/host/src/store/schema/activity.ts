import { bigint, defineTable, text, type Values } from '@sibyl/plugin-kit/tables';
import type { ActivityEntry } from '@sibyl/protocol';

/** What happened on behalf of users. */
export const activity = defineTable(
  'activity',
  {
    owner: text(),
    id: text(),
    kind: text<ActivityEntry['kind']>(),
    session_id: text().optional(),
    run_id: text().optional(),
    approval_id: text().optional(),
    call_id: text().optional().as('toolCallId'),
    tool: text().optional(),
    outcome: text<NonNullable<ActivityEntry['outcome']>>().optional(),
    decided_by: text<NonNullable<ActivityEntry['decidedBy']>>().optional(),
    created_at: bigint(),
  },
  {
    key: ['owner', 'id'],
    // Users read what happened in one session, newest first.
    indexes: { activity_by_session: { on: ['owner', 'session_id', 'id'] } },
  },
);

export type Activity = Values<typeof activity>;
