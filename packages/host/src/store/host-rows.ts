import type { OperatorAction } from '@sibyl/protocol';

/** A host that holds sockets of a session. */
export interface SocketHostRow {
  owner: string;
  session_id: string;
  host_id: string;
  sockets: number;
}

/** A call to a page that waits for an answer. */
export interface PageCallRow {
  owner: string;
  session_id: string;
  call_id: string;
  /** The host of the turn. */
  host_id: string;
  /** JSON of the event; null if the answer was stored first. */
  call: string | null;
  /** A host whose page received it. */
  delivered_by: string | null;
  /** JSON. */
  answer: string | null;
}

/** A host as it last reported itself. */
export interface HostRow {
  id: string;
  /** JSON. */
  report: string;
  started_at: number;
  updated_at: number;
}

/** A user on a list: operators, blocked users, users who share arguments of tools with operators. */
export interface ListedUserRow {
  owner: string;
  note: string | null;
  created_at: number;
}

/** Something that an operator did. */
export interface OperatorActionRow {
  /** The operator. */
  owner: string;
  id: string;
  action: OperatorAction['action'];
  target: string | null;
  note: string | null;
  created_at: number;
}
