import { bigint, defineTable, integer, type Row, real, text } from '@sibyl/plugin-kit/tables';
import type { ErrorKind, RunStatus } from '@sibyl/protocol';

/** The attempts to execute turns. */
export const runs = defineTable(
  'runs',
  {
    owner: text(),
    id: text(),
    session_id: text(),
    turn: bigint(),
    /** Counts the runs of a turn, from 1. */
    attempt: bigint(),
    request_id: text(),
    status: text<RunStatus | 'paused' | 'continued'>(),
    /** The host that executes the run; null if any host may. */
    host_id: text().optional(),
    abort_requested: text<'aborted' | 'interrupted'>().optional(),
    /** Encrypted, until the run ends. */
    request: text().optional().omitted(),
    /** Chosen when the run starts; the answer is stored under it. */
    message_id: text().optional(),
    branch: bigint(),
    /** The question to answer again; null for the question of this turn. */
    question_id: text().optional(),
    error_kind: text<ErrorKind>().optional(),
    error_message: text().optional(),
    /** JSON of what a caller receives besides the message: warnings, and why there is no answer. */
    report: text().optional(),
    last_seq: bigint(),
    input_tokens: bigint(),
    output_tokens: bigint(),
    cached_tokens: bigint(),
    /** JSON of the usage of each model. */
    usage: text().optional(),
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
