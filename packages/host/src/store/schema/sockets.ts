import { defineTable, integer, text } from '@sibyl/plugin-kit/tables';

/** The hosts that hold sockets of a session. The rows end with the sockets. */
export const socketHosts = defineTable(
  'socket_hosts',
  { owner: text(), session_id: text(), host_id: text(), sockets: integer() },
  {
    key: ['owner', 'session_id', 'host_id'],
    indexes: { socket_hosts_by_host: { on: ['host_id'] } },
    isUnlogged: true,
  },
);

/** Calls to pages that wait for an answer. */
export const pageCalls = defineTable(
  'page_calls',
  {
    owner: text(),
    session_id: text(),
    call_id: text(),
    /** The host of the turn. */
    host_id: text(),
    /** JSON of the event; null if the answer was stored first. */
    call: text().optional(),
    /** A host whose page received it. */
    delivered_by: text().optional(),
    /** JSON. */
    answer: text().optional(),
  },
  {
    key: ['owner', 'session_id', 'call_id'],
    indexes: { page_calls_by_host: { on: ['host_id'] } },
    isUnlogged: true,
  },
);
