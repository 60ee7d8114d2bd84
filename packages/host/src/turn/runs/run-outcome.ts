import { type ErrorCode, errorCatalog, OracleError, type ReplyWarning } from '@sibyl/protocol';
import type { Run, RunReport, StoredError } from '../../store/runs/run.js';

/** Warnings a reply has at most; the stream has them all. */
export const MAX_WARNINGS = 50;

/** How a run ended, for whoever waits for the whole answer. */
export interface RunOutcome {
  readonly status: 'finished' | 'aborted' | 'interrupted' | 'failed';
  readonly messageId: string | undefined;
  readonly text: string;
  readonly warnings: readonly ReplyWarning[];
  /** Why the turn has no answer, or only a part of one. */
  readonly error?: OracleError | undefined;
}

/** What is kept of a run so that a repeated request is answered as the first one was. */
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

/** Why a stored run has no answer; a code that this version does not know is a fault of the host. */
export function readError({ status, fault, report }: Run): OracleError | undefined {
  const { error } = report;
  if (error === undefined) {
    // A run that an earlier version stored.
    const message = fault?.message ?? 'The turn failed';
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
