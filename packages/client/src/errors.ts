import type { ErrorCode } from '@sibyl/protocol';

/** Errors that occur in the client. */
export type ClientErrorCode =
  /** The oracle cannot be reached. */
  | 'network_error'
  /** A stream broke and reconnecting failed; the turn continues on the server. */
  | 'connection_lost'
  /** The reply is not from an oracle, or a proxy changed it. */
  | 'invalid_reply'
  /** The signer rejected the request or failed. */
  | 'signing_failed'
  /** The text or file is not a valid key. */
  | 'key_invalid'
  /** The passphrase of a backup is wrong. */
  | 'key_passphrase_wrong'
  /** The passkey that protects the key was not confirmed. */
  | 'key_locked'
  /** Another tab removed the key. */
  | 'key_not_found'
  /** The key is in use or has no backup, so it is not removed. */
  | 'key_in_use'
  /** The browser lacks a required feature; the message names it. */
  | 'unsupported_platform';

interface OracleClientErrorFields extends ErrorOptions {
  /** The HTTP status, if the oracle replied. */
  readonly status?: number;
  readonly requestId?: string;
  /** One line per invalid field. */
  readonly lines?: readonly string[];
  readonly retryAfterSeconds?: number;
  /** Ids of the unsettled claims that caused a 402. */
  readonly claims?: readonly string[];
}

/** The only error class of this package; `code` is for programs, `message` for people. */
export class OracleClientError extends Error {
  override readonly name = 'OracleClientError';
  readonly code: ErrorCode | ClientErrorCode | (string & {});
  readonly status: number | undefined;
  readonly requestId: string | undefined;
  readonly lines: readonly string[];
  readonly retryAfterSeconds: number | undefined;
  readonly claims: readonly string[];

  constructor(
    code: OracleClientError['code'],
    message: string,
    fields: OracleClientErrorFields = {},
  ) {
    super(message, fields);
    this.code = code;
    this.status = fields.status;
    this.requestId = fields.requestId;
    this.lines = fields.lines ?? [];
    this.retryAfterSeconds = fields.retryAfterSeconds;
    this.claims = fields.claims ?? [];
  }
}

/** Wraps what a signer throws. */
export function toSigningError(cause: unknown): OracleClientError {
  if (cause instanceof OracleClientError) return cause;
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new OracleClientError('signing_failed', `Signing failed: ${reason}`, { cause });
}
