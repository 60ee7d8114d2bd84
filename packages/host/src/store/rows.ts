import type { OperatorAction } from '@sibyl/protocol';

/** The messages of a session that continue from an earlier one in another way. */
export interface BranchRow {
  owner: string;
  session_id: string;
  /** From 1; the first messages of a session are branch 0. */
  branch: number;
  /** The branch of the message it continues from; null if it begins the session again. */
  base_branch: number | null;
  /** The last message of that branch that belongs to this one too. */
  base_turn: number;
  base_seq: number;
  /** The message it continues from; empty if it begins the session again. */
  parent_id: string;
  /** The message that continued from there first. */
  original_id: string | null;
  /** The first message of the branch, perhaps an answer that is not stored yet. */
  first_id: string;
}

/** What a user thinks of an answer. */
export interface FeedbackRow {
  owner: string;
  session_id: string;
  message_id: string;
  rating: 'up' | 'down';
  comment: string | null;
  created_at: number;
  updated_at: number;
}

/** A file of a user. */
export interface FileRow {
  owner: string;
  id: string;
  name: string;
  media_type: string;
  /** What is reserved while the file is being uploaded. */
  size: number;
  /** SHA-256; null unless the file is ready. */
  hash: string | null;
  status: 'uploading' | 'ready' | 'deleting';
  /** Where its chunks are. */
  storage: 'database' | 's3';
  chunk_bytes: number;
  text_status: 'pending' | 'ready' | 'none' | 'failed';
  text_error: string | null;
  text_unit: 'page' | 'sheet' | 'paragraph' | 'line' | null;
  text_count: number | null;
  text_complete: number | null;
  /** How often reading its text was begun. */
  attempts: number;
  /** Until when a host reads or embeds its text. */
  lease_until: number | null;
  created_at: number;
  updated_at: number;
  /** Bytes of its passages; null if there are none. */
  text_bytes: number | null;
  /** The host that receives it, or was the last to read or embed its text. */
  host_id: string | null;
  /** The model of its vectors; null until all of its passages have one. */
  vector_model: string | null;
}

/** The meaning of a passage. */
export interface PassageVectorRow {
  owner: string;
  file_id: string;
  n: number;
  vector: Uint8Array;
  /** Null in files that an older version embedded. */
  model: string | null;
}

export interface FileChunkRow {
  owner: string;
  file_id: string;
  n: number;
  data: Uint8Array;
}

/** A piece of the text of a file. */
export interface PassageRow {
  owner: string;
  file_id: string;
  n: number;
  /** The number of the page, sheet, paragraph or line it begins with. */
  place: number;
  position: string;
  /** Words that stand for its owner and its file in the full-text index. */
  scope: string;
  text: string;
}

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
