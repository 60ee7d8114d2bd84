import { defineTable, text } from '@sibyl/plugin-kit/tables';

/** The sessions that clients of a surface know by their own ids. */
export const clientThreads = defineTable(
  'client_threads',
  { owner: text(), surface: text(), thread_id: text(), session_id: text() },
  {
    key: ['owner', 'surface', 'thread_id'],
    parent: { table: 'sessions', column: 'session_id' },
    indexes: { client_threads_of_session: { on: ['owner', 'session_id'] } },
  },
);

/** The ids that clients gave their messages. */
export const clientIds = defineTable(
  'client_ids',
  { owner: text(), session_id: text(), client_id: text(), message_id: text() },
  {
    key: ['owner', 'session_id', 'client_id'],
    parent: { table: 'sessions', column: 'session_id' },
  },
);
