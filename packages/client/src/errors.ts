import type { ErrorCode } from '@sibyl/protocol';

/** What can go wrong on this side of the wire. */
export type ClientErrorCode =
  /** Nobody answered. */
  | 'network_error'
  /** A stream broke and could not be joined again; the turn goes on without this client. */
  | 'connection_lost'
  /** What answered does not speak the contract: not an oracle, or something in between. */
  | 'invalid_reply'
  /** The signer refused or could not sign. */
  | 'signing_failed'
  /** The text or file is not a key. */
  | 'key_invalid'
  /** The key was exported before, or imported: it cannot leave the browser any more. */
  | 'key_not_exportable'
  /** This platform lacks what the call needs; the message says what. */
  | 'unsupported_platform';

interface OracleClientErrorFields extends ErrorOptions {
  /** The HTTP status, when a host answered. */
  readonly status?: number;
  readonly requestId?: string;
  /** One line per field that a validation refused. */
  readonly lines?: readonly string[];
  readonly retryAfterSeconds?: number;
  /** Ids of the unsettled claims behind a 402. */
  readonly claims?: readonly string[];
}

/** The one error this package throws; `code` is for programs, `message` for people. */
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

/** What a signer throws, as an error of this package. */
export function toSigningError(cause: unknown): OracleClientError {
  if (cause instanceof OracleClientError) return cause;
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new OracleClientError('signing_failed', `Not signed: ${reason}`, { cause });
}
