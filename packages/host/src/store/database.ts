import type { DatabaseEngine } from '@sibyl/plugin-kit';
import type {
  ActivityEntry,
  Approval,
  Decision,
  ErrorKind,
  PendingAnswer,
  RunStatus,
} from '@sibyl/protocol';
import type { Generated, Kysely } from 'kysely';
import type { DiskSpace } from './disk-space.js';
import type { MigrationPlan } from './migrations/migrate.js';
import type { RemovalLog } from './own-data/removal-log.js';
import type {
  BranchRow,
  FeedbackRow,
  FileChunkRow,
  FileRow,
  HostRow,
  ListedUserRow,
  OperatorActionRow,
  PageCallRow,
  PassageRow,
  PassageVectorRow,
  SocketHostRow,
} from './rows.js';

/** A unit of work; it awaits only queries on the given tables, and may run again if the database rolls it back. */
export type Unit<T> = (tables: Kysely<Schema>) => Promise<T>;

/** How a unit of work is queued. */
export interface WriteOptions<T> {
  /** Called as soon as others see the outcome, if that is before it is on disk. */
  readonly onCommit?: ((value: T) => void) | undefined;
  /** Before all that wait already: the end of work that was accepted. */
  readonly isFirst?: boolean | undefined;
}

/** One engine, opened and migrated. */
export interface Database {
  readonly engine: DatabaseEngine;
  /** The current time in milliseconds, by the clock of the database: all hosts that share it agree on it. */
  readonly now: () => number;
  /** Single reads outside any transaction. */
  readonly tables: Kysely<Schema>;
  /** Runs a unit of work in a transaction; settles once the outcome is on disk. */
  write<T>(unit: Unit<T>, options?: WriteOptions<T>): Promise<T>;
  /**
   * As `write`, but units of one owner never run at the same time, on any host: rows that a unit has counted do not
   * change until it is committed.
   */
  writeFor<T>(owner: string, unit: Unit<T>, options?: WriteOptions<T>): Promise<T>;
  /** How long a write that is submitted now would probably wait until it begins, in milliseconds. */
  estimateDelay(): number;
  /** Whether writes wait only for others: part of one was stored within the last `ms`. */
  isStoring(ms: number): boolean;
  /** Runs several reads on one snapshot. */
  read<T>(unit: Unit<T>): Promise<T>;
  /** Migrates a schema other than that of the host. */
  migrate(plan: MigrationPlan): Promise<void>;
  /** Returns the space of deleted rows to the file system, if the engine does not do so itself. */
  reclaim(log?: ReclaimedLog): Promise<void>;
  close(): Promise<void>;
}

/**
 * The tables as both engines hold them: timestamps are milliseconds, booleans 0 or 1, JSON is text.
 */
export interface Schema {
  sessions: SessionRow;
  rooms: RoomRow;
  room_state: RoomStateRow;
  messages: MessageRow;
  client_ids: ClientIdRow;
  client_threads: ClientThreadRow;
  runs: RunRow;
  frames: FrameChunkRow;
  run_steps: RunStepRow;
  interrupts: InterruptRow;
  approvals: ApprovalRow;
  activity: ActivityRow;
  rules: RulesRow;
  delegations: DelegationRow;
  revocations: RevocationRow;
  single_use: SingleUseRow;
  callers: CallerRow;
  idempotency_keys: IdempotencyRow;
  session_state: SessionStateRow;
  secrets: SecretRow;
  blobs: BlobRow;
  model_usage: ModelUsageRow;
  database_info: DatabaseInfoRow;
  socket_hosts: SocketHostRow;
  page_calls: PageCallRow;
  branches: BranchRow;
  feedback: FeedbackRow;
  search_queue: SearchQueueRow;
  search_documents: SearchDocumentRow;
  usage_days: UsageDayRow;
  import_jobs: ImportJobRow;
  files: FileRow;
  file_chunks: FileChunkRow;
  file_passages: PassageRow;
  file_vectors: PassageVectorRow;
  hosts: HostRow;
  operators: ListedUserRow;
  blocked_users: ListedUserRow;
  shared_arguments: ListedUserRow;
  operator_actions: OperatorActionRow;
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
  /** The branch that readers see and new messages continue. */
  active_branch: number;
  /** The number of branches besides the first. */
  last_branch: number;
  /** The last message of the active branch, perhaps an answer that is not stored yet. */
  active_message_id: string | null;
  /** What it was before the last change, which a statement returns in this way. */
  previous_message_id: string | null;
  /** 1 if it appears in no list and is deleted once it is not used any more. */
  unlisted: Generated<number>;
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
  /** Null while the first change is in progress. */
  data: string | null;
  updated_at: number;
}

export interface MessageRow {
  owner: string;
  id: string;
  session_id: string;
  turn: number;
  seq: number;
  /** 0, or a row of `branches`. */
  branch: number;
  /** The question of an answer; for a question, the message it continues from. */
  parent: string | null;
  type: 'human' | 'ai';
  /** The text of all parts. */
  content: string;
  /** JSON, in the order they happened; null if the message is only its text. */
  parts: string | null;
  metadata: string | null;
  request_id: string;
  run_id: string | null;
  is_complete: number;
  /** JSON: why the turn has no complete answer. */
  error: string | null;
  created_at: number;
}

/** The sessions that clients of a surface know by their own ids. */
interface ClientThreadRow {
  owner: string;
  surface: string;
  thread_id: string;
  session_id: string;
}

/** The ids that clients gave their messages. */
export interface ClientIdRow {
  owner: string;
  session_id: string;
  client_id: string;
  message_id: string;
}

export interface RunRow {
  owner: string;
  id: string;
  session_id: string;
  turn: number;
  /** Counts the runs of a turn, from 1. */
  attempt: number;
  request_id: string;
  status: RunStatus | 'paused' | 'continued';
  /** The host that executes the run; null if any host may. */
  host_id: string | null;
  abort_requested: 'aborted' | 'interrupted' | null;
  /** Encrypted, until the run ends. */
  request: string | null;
  /** Chosen when the run starts; the answer is stored under it. */
  message_id: string | null;
  branch: number;
  /** The question to answer again; null for the question of this turn. */
  question_id: string | null;
  error_kind: ErrorKind | null;
  error_message: string | null;
  /** JSON of what a caller receives besides the message: warnings, and why there is no answer. */
  report: string | null;
  last_seq: number;
  input_tokens: number;
  output_tokens: number;
  cached_tokens: number;
  /** JSON of the usage of each model; null in runs from before it was kept. */
  usage: string | null;
  /** Of the request that started the turn, so that all hosts add to one trace. */
  traceparent: string | null;
  /** From the start of execution to the first text of the answer. */
  first_text_ms: number | null;
  /** A code for why there is no complete answer. */
  cause: string | null;
  /** Null if the models have no price. */
  cost: number | null;
  /** JSON of the spans. */
  trace: string | null;
  created_at: number;
  /** When execution began. */
  started_at: number | null;
  updated_at: number;
}

/** Consecutive frames of a run. */
export interface FrameChunkRow {
  owner: string;
  run_id: string;
  /** The number of the last frame. */
  seq: number;
  /** For each frame its event, a space and its data, which has no line breaks. */
  lines: string;
}

export interface RunStepRow {
  owner: string;
  run_id: string;
  step: number;
  /** Encrypted. */
  data: string;
  created_at: number;
}

/** What a paused run waits for. */
export interface InterruptRow {
  owner: string;
  id: string;
  session_id: string;
  run_id: string;
  turn: number;
  /** The call that needs the answer. */
  call_id: string;
  /** Identifies the interrupt within its turn. */
  path: string;
  kind: PendingAnswer['kind'];
  /** JSON Schema of the answer. */
  schema: string;
  /** Encrypted, as `answer`. */
  data: string | null;
  status: 'open' | 'answered' | 'expired' | 'cancelled';
  expires_at: number;
  answer: string | null;
  answered_at: number | null;
  /** The run that continues with the answer. */
  next_run_id: string | null;
  created_at: number;
}

/** A tool call that needs the approval of its user; its id is that of an interrupt, which it outlives. */
export interface ApprovalRow {
  owner: string;
  id: string;
  session_id: string;
  run_id: string;
  /** Identifies the call within its turn. */
  call: string;
  call_id: string;
  tool: string;
  plugin: string;
  args_hash: string;
  required_by: Approval['requiredBy'];
  /** Encrypted JSON: arguments and their schema. */
  request: string;
  created_at: number;
  expires_at: number;
  decision: Decision | null;
  decided_at: number | null;
  /** Encrypted JSON. */
  answer: string | null;
  /** Encrypted; null if the user did not sign. */
  receipt: string | null;
}

/** Something that happened on behalf of a user. */
export interface ActivityRow {
  owner: string;
  id: string;
  kind: ActivityEntry['kind'];
  session_id: string | null;
  run_id: string | null;
  approval_id: string | null;
  call_id: string | null;
  tool: string | null;
  outcome: NonNullable<ActivityEntry['outcome']> | null;
  decided_by: NonNullable<ActivityEntry['decidedBy']> | null;
  created_at: number;
}

/** The rules that a user has signed. */
interface RulesRow {
  owner: string;
  cid: string;
  /** JSON. */
  rules: string;
  /** Encrypted. */
  token: string;
  /** Seconds, as in the token; null if it never expires. */
  expires_at: number | null;
  stored_at: number;
}

/** What a user delegated for: calls of services, logins, turns at set times, rules. */
export type DelegationPurpose = 'services' | 'access-key' | 'schedule' | 'rules';

export interface DelegationRow {
  owner: string;
  cid: string;
  purpose: DelegationPurpose;
  audience: string;
  /** JSON; null in rows from before it was kept. */
  capabilities: string | null;
  /** The token, of the current delegation alone. */
  ciphertext: string | null;
  /** Seconds, as in the token; null for a delegation that never expires. */
  expires_at: number | null;
  created_at: number;
  /** Null for a delegation that was presented in a request, but never stored by its user. */
  stored_at: number | null;
  last_used_at: number | null;
  /** The name of the plugin that last used it. */
  last_used_by: string | null;
  /** The fields below belong to access keys. */
  name: string | null;
  /** JSON. */
  caveats: string | null;
  /** The day (UTC) that `turns` counts. */
  turns_day: string | null;
  turns: number | null;
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

interface IdempotencyRow {
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

/** Facts about the database itself, the same for all hosts. */
interface DatabaseInfoRow {
  key: string;
  value: string;
}

/** What has changed since it was indexed. */
export interface SearchQueueRow {
  owner: string;
  /** `session`: everything in it. */
  source: string;
  id: string;
  /** Counts the changes. */
  version: number;
}

/** The words of a text; on PostgreSQL only. */
export interface SearchDocumentRow {
  owner: string;
  source: string;
  id: string;
  part: number;
  scope: string;
  created_at: number;
  terms: string;
}

/** What a user used in a session that was deleted. */
export interface UsageDayRow {
  owner: string;
  /** In UTC, such as 2026-01-31. */
  day: string;
  session_id: string;
  model: string;
  turns: number;
  input_tokens: number;
  output_tokens: number;
  cached_tokens: number;
  /** Null if the model has no price. */
  cost: number | null;
}

interface ImportJobRow {
  owner: string;
  id: string;
  /** JSON. */
  progress: string;
  created_at: number;
  updated_at: number;
}

/** `behind`: the next start will migrate the database. */
export type DatabaseState = 'absent' | 'behind' | 'ready';

/** Runs reads on one snapshot, also while other processes write. */
export function readSnapshot<T>(tables: Kysely<Schema>, unit: Unit<T>): Promise<T> {
  return tables
    .transaction()
    .setIsolationLevel('repeatable read')
    .setAccessMode('read only')
    .execute(unit);
}

const NUL = '\u0000';

/**
 * Replaces NUL characters by U+FFFD: PostgreSQL rejects them in text, and a request with one must not fail on either
 * engine.
 */
export function storable(value: unknown): unknown {
  if (typeof value !== 'string' || !value.includes(NUL)) return value;
  return value.replaceAll(NUL, '\uFFFD');
}

/** The log of SQLite: on a full disk, deleting needs the space that it has. */
export type ReclaimedLog = 'emptied' | 'kept';

export interface StoreContext {
  readonly database: Database;
  /** The current time in milliseconds. */
  readonly clock: () => number;
  readonly newId: () => string;
  /** Unset if the database is not on a disk of this host. */
  readonly disk?: DiskSpace | undefined;
  readonly removals?: RemovalLog | undefined;
}
