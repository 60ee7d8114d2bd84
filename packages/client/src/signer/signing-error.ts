import { OracleClientError } from '../oracle-client-error.js';

/** What a signer throws, as an error of this package. */
export function signingError(cause: unknown): OracleClientError {
  if (cause instanceof OracleClientError) return cause;
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new OracleClientError('signing_failed', `Not signed: ${reason}`, { cause });
}
