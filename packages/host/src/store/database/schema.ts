import type { FaultKind, RunStatus } from '@sibyl/protocol';

/**
 * The tables as both engines hold them: timestamps are milliseconds, booleans 0 or 1, JSON is text.
 */
export interface Schema {
  sessions: SessionRow;
  rooms: RoomRow;
  room_state: RoomStateRow;
  messages: MessageRow;
  runs: RunRow;
  run_frames: RunFrameRow;
  delegations: DelegationRow;
  revocations: RevocationRow;
  single_use: SingleUseRow;
  callers: CallerRow;
  idempotency_keys: IdempotencyRow;
  session_state: SessionStateRow;
  secrets: SecretRow;
  blobs: BlobRow;
  model_usage: ModelUsageRow;
}

export interface SessionRow {
  id: string;
  owner: string;
  title: string;
  created_at: number;
  last_updated_at: number;
  oracle_did: string;
  oracle_name: string | null;
  oracle_entity_did: string | null;
  room_id: string;
  last_seq: number;
  last_turn: number;
}

interface RoomRow {
  id: string;
  owner: string;
  oracle_did: string;
  created_at: number;
}

interface RoomStateRow {
  owner: string;
  room_id: string;
  key: string;
  /** Null while the first change is under way. */
  data: string | null;
  updated_at: number;
}

export interface MessageRow {
  id: string;
  session_id: string;
  owner: string;
  turn: number;
  seq: number;
  type: 'human' | 'ai';
  content: string;
  tool_calls: string | null;
  reasoning: string | null;
  attachments: string | null;
  metadata: string | null;
  request_id: string;
  run_id: string | null;
  is_complete: number;
  created_at: number;
}

export interface RunRow {
  id: string;
  session_id: string;
  owner: string;
  request_id: string;
  turn: number;
  status: RunStatus;
  error_kind: FaultKind | null;
  error_message: string | null;
  message_id: string | null;
  last_seq: number;
  input_tokens: number;
  output_tokens: number;
  cached_tokens: number;
  /** JSON of what a caller learns beside the message: warnings, and why there is no answer. */
  report: string | null;
  started_at: number;
  updated_at: number;
  host_id: string;
  lease_until: number;
}

export interface RunFrameRow {
  run_id: string;
  owner: string;
  seq: number;
  event: string;
  data: string;
}

export interface DelegationRow {
  owner: string;
  cid: string;
  audience: string;
  /** JSON; null in rows from before it was kept. */
  capabilities: string | null;
  /** The token, of the current delegation alone. */
  ciphertext: string | null;
  /** Seconds, as in the token; null for a delegation that never expires. */
  expires_at: number | null;
  created_at: number;
  /** Null for a delegation that was presented, but never given to the host to keep. */
  stored_at: number | null;
  last_used_at: number | null;
}

interface RevocationRow {
  owner: string;
  cid: string;
  /** Seconds; null for a delegation that never expires. */
  expires_at: number | null;
}

interface CallerRow {
  did: string;
  /** The invitation that was redeemed. */
  cid: string;
  created_at: number;
}

interface SingleUseRow {
  cid: string;
  owner: string;
  expires_at: number;
}

export interface IdempotencyRow {
  owner: string;
  key: string;
  body_hash: string;
  run_id: string;
  created_at: number;
  expires_at: number;
}

interface SessionStateRow {
  session_id: string;
  owner: string;
  plugin: string;
  key: string;
  value: string;
}

interface SecretRow {
  owner: string;
  plugin: string;
  name: string;
  ciphertext: string;
}

interface BlobRow {
  id: string;
  owner: string;
  plugin: string;
  media_type: string;
  size: number;
  data: Uint8Array;
  created_at: number;
}

interface ModelUsageRow {
  /** In UTC, such as 2026-01-31. */
  day: string;
  tokens: number;
}
