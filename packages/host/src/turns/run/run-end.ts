import {
  type ErrorCode,
  type ErrorKind,
  errorCatalog,
  OracleError,
  type PendingAnswer,
  type ReplyWarning,
  WarningFrame,
} from '@sibyl/protocol';
import { toModelCause } from '../../models/failure-cause.js';
import { ModelError } from '../../models/model.js';
import type { Frame } from '../../store/runs/frames.js';
import type { EndStatus, Run, RunEnd } from '../../store/runs/run.js';
import type { RunReport, StoredError, TokenUsage } from '../../store/schema/runs.js';
import { classifyStoreError, isStoreError } from '../../store/store-errors.js';
import { MessageParts } from './message-parts.js';
import { buildCacheInvalidation, buildDoneFrame, buildResumedFrame, toFrames } from './run-log.js';

/** The most warnings in a reply; the stream contains all of them. */
export const MAX_WARNINGS = 50;

/** How a run ended, for callers that wait for the complete answer. */
export interface RunOutcome {
  readonly status: EndStatus;
  readonly messageId: string | undefined;
  readonly text: string;
  readonly warnings: readonly ReplyWarning[];
  readonly usage?: TokenUsage | undefined;
  /** Why the answer is missing or incomplete. */
  readonly error?: OracleError | undefined;
  /** The answers that a paused run waits for. */
  readonly pending?: readonly PendingAnswer[] | undefined;
}

/** Builds what is stored of a run so that a repeated request receives the same reply. */
export function createReport(warnings: readonly ReplyWarning[], error?: OracleError): RunReport {
  const kept = warnings.slice(0, MAX_WARNINGS).map(({ code, message }) => ({ code, message }));
  return {
    ...(kept.length > 0 && { warnings: kept }),
    ...(error && { error: toStoredError(error) }),
  };
}

function toStoredError(error: OracleError): StoredError {
  const { code, message, lines, fields, retryAfterSeconds } = error;
  return {
    code,
    message: lines ?? message,
    ...(Object.keys(fields).length > 0 && { fields }),
    ...(retryAfterSeconds !== undefined && { retryAfterSeconds }),
  };
}

/** Reads why a stored run has no answer; an unknown code becomes `internal_error`. */
export function readError({ status, error: reason, report }: Run): OracleError | undefined {
  const { error } = report;
  if (error === undefined) {
    const message = reason?.message ?? 'The turn failed';
    return status === 'failed' ? new OracleError('model_unavailable', { message }) : undefined;
  }
  const { code, message, fields = {}, retryAfterSeconds } = error;
  const isKnown = Object.hasOwn(errorCatalog, code);
  return new OracleError(isKnown ? (code as ErrorCode) : 'internal_error', {
    message,
    fields,
    ...(retryAfterSeconds !== undefined && { retryAfterSeconds }),
  });
}

/** What readers see if the end could not be stored. */
export const NOT_STORED = 'The answer could not be stored. Try again.';

/** The error for a JSON caller if the end of its turn could not be stored. */
export const createNotStoredError = (): OracleError =>
  new OracleError('store_unavailable', { message: NOT_STORED, retryAfterSeconds: 5 });

/** What a JSON caller receives then. */
export const createUnstoredOutcome = (): RunOutcome => ({
  status: 'failed',
  messageId: undefined,
  text: '',
  warnings: [],
  error: createNotStoredError(),
});

/** Why a turn failed: the fields of its `error` frame, and the error for a caller that receives no text. */
export interface TurnError {
  readonly message: string;
  readonly kind: ErrorKind;
  readonly retryable: boolean;
  readonly error: OracleError;
  /** A code for operators. */
  readonly cause: string;
}

const RETRY_SECONDS = 5;

/** Describes an error to the user; undefined if it is a bug of the host. */
export function toTurnError(error: unknown): TurnError | undefined {
  if (error instanceof ModelError) return fromModelError(error);
  if (error instanceof OracleError) return fromOracleError(error);
  if (!isStoreError(error)) return undefined;
  return fromOracleError(
    new OracleError('store_unavailable', { retryAfterSeconds: RETRY_SECONDS, cause: error }),
  );
}

/** Hides the details of a bug from the user. */
export function createUnexpectedError(): TurnError {
  const error = new OracleError('internal_error', { message: 'The turn failed within the host' });
  return { message: error.message, kind: 'unknown', retryable: true, error, cause: error.code };
}

function fromModelError(failure: ModelError): TurnError {
  const { message, kind, retryable, retryAfterSeconds = RETRY_SECONDS } = failure;
  const error = new OracleError('model_unavailable', {
    message,
    // No Retry-After for a call that would fail again.
    ...(retryable && { retryAfterSeconds }),
  });
  return { message, kind, retryable, error, cause: toModelCause(failure) };
}

/** An error of a gate, a middleware, a limit or the store. */
function fromOracleError(error: OracleError): TurnError {
  const { status, message } = error;
  const retryable = status === 429 || status === 503;
  const kind = kindsByStatus[status] ?? 'unknown';
  return { message, kind, retryable, error, cause: toCause(error) };
}

/** A full disk is the one outage of the store that has its own remedy. */
const toCause = ({ code, cause }: OracleError): string =>
  classifyStoreError(cause) === 'full' ? 'disk_full' : code;

/** Why the host ended a turn; users may interrupt their own turns. */
export function findCause(status: string, error: OracleError | undefined): string | undefined {
  if (status !== 'interrupted' || !error || error.code === 'turn_interrupted') return undefined;
  return toCause(error);
}

const kindsByStatus: Readonly<Record<number, ErrorKind>> = {
  401: 'auth',
  402: 'billing',
  403: 'auth',
  422: 'server',
  429: 'rate_limit',
  503: 'server',
};

/** More frames than a host can have shown before it stored them. */
const FRAME_GAP = 1_000_000;

/** The last frames of a dead host's run that another attempt continues: readers keep `partial`. */
export function buildHandover(run: Run, partial: string): Frame[] {
  const { runId, messageId } = run;
  const done = buildDoneFrame({ runId, messageId, status: 'interrupted', text: partial });
  return toFrames([buildResumedFrame(run, partial), done], run.lastSeq + FRAME_GAP);
}

/** Ends a run that never began, with the reason. */
export function endUnanswered(run: Run, error: OracleError): RunEnd {
  const { code, message } = error;
  const { runId, messageId, sessionId, requestId, lastSeq } = run;
  const timestamp = new Date().toISOString();
  const isRetryable = error.status === 429 || error.status === 503;
  const kind = kindsByStatus[error.status] ?? 'server';
  const data = {
    error: message,
    kind,
    code,
    retryable: isRetryable,
    sessionId,
    requestId,
    timestamp,
  };
  const done = buildDoneFrame({ runId, messageId, status: 'failed', text: '' });
  return {
    status: 'failed',
    message: { content: '', isComplete: false, error: { status: 'failed', code, message, kind } },
    error: { kind, message },
    report: createReport([], error),
    trace: { cause: code },
    frames: toFrames([{ event: 'error', data }, done], lastSeq + 1),
  };
}

/** Ends a run of a dead host with the part of the answer that its log contains. */
export function endInterrupted(run: Run, frames: readonly Frame[]): RunEnd {
  const { messageId } = run;
  const message = readParts(frames).toMessage();
  const status = run.cancelReason ?? 'interrupted';
  const error = new OracleError('host_stopping', {
    message: `${INTERRUPTED} Try again.`,
    retryAfterSeconds: 5,
  });
  const warnings = parseFrames(frames, 'warning', WarningFrame);
  const start = buildResumedFrame(run, message.content);
  const last = [
    start,
    buildCacheInvalidation(run, messageId),
    buildDoneFrame({ runId: run.runId, messageId, status, text: message.content }),
  ];
  return {
    status,
    message: {
      ...message,
      isComplete: false,
      error: { status, code: error.code, message: INTERRUPTED },
    },
    report: createReport(warnings, status === 'interrupted' ? error : undefined),
    ...(status === 'interrupted' && { trace: { cause: 'host_lost' } }),
    frames: toFrames(last, run.lastSeq + FRAME_GAP),
  };
}

const INTERRUPTED = 'The host stopped before the answer was complete.';

interface Parser<T> {
  safeParse(data: unknown): { readonly data?: T | undefined };
}

/** Skips frames of other versions that cannot be parsed, so that the run can be closed. */
function parseFrames<T>(frames: readonly Frame[], event: string, schema: Parser<T>): T[] {
  return frames
    .filter((frame) => frame.event === event)
    .flatMap((frame) => schema.safeParse(JSON.parse(frame.data)).data ?? []);
}

/** Collects what the log contains of the answer. */
function readParts(frames: readonly Frame[]): MessageParts {
  const parts = new MessageParts();
  for (const { event, data } of frames) parts.addFrame(event, JSON.parse(data));
  return parts;
}
