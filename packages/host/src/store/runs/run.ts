import type { ErrorKind, ReplyWarning, RunStatus } from '@sibyl/protocol';
import type { RunRow } from '../database.js';

/** The states of a run that has not ended. */
export const LIVE = ['queued', 'running'] as const satisfies readonly RunStatus[];

/** The states of a run that has ended. */
export const ENDED = [
  'finished',
  'aborted',
  'interrupted',
  'failed',
] as const satisfies readonly RunStatus[];

export interface TokenUsage {
  readonly input: number;
  readonly output: number;
  readonly cached: number;
}

export interface RunError {
  readonly kind: ErrorKind;
  readonly message: string;
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
}

/** One turn; times in milliseconds. */
export interface Run {
  readonly id: string;
  readonly sessionId: string;
  readonly owner: string;
  readonly requestId: string;
  readonly turn: number;
  readonly status: RunStatus;
  readonly startedAt: number;
  readonly updatedAt: number;
  /** Number of the last stored frame, 0 for none. */
  readonly lastSeq: number;
  /** The answer is stored under this id. */
  readonly messageId?: string;
  readonly usage: TokenUsage;
  readonly fault?: RunError;
  readonly report: RunReport;
}

export const hasEnded = <R extends Pick<Run, 'status'>>(
  run: R,
): run is R & { readonly status: (typeof ENDED)[number] } =>
  ENDED.some((status) => status === run.status);

export function toRun(row: RunRow): Run {
  const { error_kind: kind, error_message: message } = row;
  return {
    id: row.id,
    sessionId: row.session_id,
    owner: row.owner,
    requestId: row.request_id,
    turn: row.turn,
    status: row.status as RunStatus,
    startedAt: row.started_at ?? row.created_at,
    updatedAt: row.updated_at,
    lastSeq: row.last_seq,
    usage: { input: row.input_tokens, output: row.output_tokens, cached: row.cached_tokens },
    report: row.report === null ? {} : (JSON.parse(row.report) as RunReport),
    ...(row.message_id !== null && { messageId: row.message_id }),
    ...(kind !== null && { fault: { kind, message: message ?? '' } }),
  };
}
