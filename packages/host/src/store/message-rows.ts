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
