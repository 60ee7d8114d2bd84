import { bigint, defineTable, integer, json, type Row, real, text } from '@sibyl/plugin-kit/tables';
import type { ErrorKind, PendingAnswer, ReplyWarning, RunStatus } from '@sibyl/protocol';
import { sql } from 'kysely';

/** Why a run is canceled: a user aborts it; another turn or the host interrupts it. */
export type CancelReason = 'aborted' | 'interrupted';

export interface TokenUsage {
  readonly input: number;
  readonly output: number;
  readonly cached: number;
  /** In the currency of the configured prices; stored with the report. */
  readonly cost?: number | undefined;
  /** The same by model. */
  readonly models?: readonly (TokenUsage & { readonly model: string })[] | undefined;
}

/** An error that is stored to be returned again. */
export interface StoredError {
  readonly code: string;
  readonly message: string | readonly string[];
  readonly fields?: Readonly<Record<string, unknown>> | undefined;
  readonly retryAfterSeconds?: number | undefined;
}

/** What a caller receives besides the message of a run. */
export interface RunReport {
  readonly warnings?: readonly ReplyWarning[] | undefined;
  /** Why there is no answer, or only a partial one. */
  readonly error?: StoredError | undefined;
  /** The interrupts that a paused run waits for. */
  readonly pending?: readonly PendingAnswer[] | undefined;
  readonly cost?: number | undefined;
  /** There is no answer because of an error that may not happen again: a repeated request starts the next attempt. */
  readonly isUnanswered?: boolean | undefined;
}

/** The attempts to execute turns. */
export const runs = defineTable(
  'runs',
  {
    owner: text(),
    id: text().as('runId'),
    session_id: text(),
    turn: bigint(),
    /** Starts at 1; a paused or interrupted turn continues with the next. */
    attempt: bigint(),
    request_id: text(),
    status: text<RunStatus>(),
    /** The host that accepted or executes it; none if any host may take it. */
    host_id: text().optional(),
    /** Set when the run was canceled from any host. */
    abort_requested: text<CancelReason>().optional().as('cancelReason'),
    /** Encrypted, until the run ends. */
    request: text().optional().omitted(),
    /** Chosen when the run starts; the answer is stored under it. */
    message_id: text().optional(),
    /** Where its messages are. */
    branch: bigint(),
    /** The question to answer again; none for the question of this turn. */
    question_id: text().optional(),
    error_kind: text<ErrorKind>().optional(),
    error_message: text().optional(),
    report: json<RunReport>().optional(),
    /** Number of the last stored frame, 0 for none. */
    last_seq: bigint(),
    input_tokens: bigint(),
    output_tokens: bigint(),
    cached_tokens: bigint(),
    usage: json<TokenUsage['models']>().optional(),
    /** Of the request that started the turn, so that all hosts add to one trace. */
    traceparent: text().optional(),
    /** From the start of execution to the first text of the answer. */
    first_text_ms: integer().optional(),
    /** A code for why there is no complete answer. */
    cause: text().optional(),
    /** Null if the models have no price. */
    cost: real().optional(),
    /** JSON of the spans. */
    trace: text().optional(),
    created_at: bigint(),
    /** When execution began. */
    started_at: bigint().optional(),
    updated_at: bigint(),
  },
  {
    key: ['owner', 'id'],
    parent: { table: 'sessions', column: 'session_id' },
    indexes: {
      runs_in_order: { on: ['owner', 'session_id', 'turn', 'attempt'], isUnique: true },
      runs_active: {
        on: ['owner', 'session_id'],
        isUnique: true,
        where: "status in ('running', 'paused')",
      },
      runs_open_by_owner: { on: ['owner'], where: "status in ('queued', 'running', 'paused')" },
      runs_by_host: { on: ['host_id'], where: "status in ('queued', 'running')" },
      runs_by_status: { on: ['status', 'updated_at'] },
      // Operators look up turns of any user.
      runs_by_id: { on: ['id'] },
    },
  },
);

export type RunRow = Row<typeof runs>;

export interface RunKey {
  readonly owner: string;
  readonly runId: string;
}

/** The states of a run that has ended. */
export const ENDED = [
  'finished',
  'aborted',
  'interrupted',
  'failed',
  'continued',
] as const satisfies readonly RunStatus[];

/** Literally as in the indexes, so that the engines use them. */
export const isOpen = sql<boolean>`status in ('queued', 'running', 'paused')`;

export const isActive = sql<boolean>`status in ('running', 'paused')`;
