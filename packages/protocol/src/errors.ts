import { z } from 'zod';

/** Every error a client can receive: code → HTTP status and text. */
export const errorCatalog = {
  validation_failed: [400, 'The request does not match its schema'],
  invalid_json: [400, 'The body is not valid JSON'],
  bad_request: [400, 'The request could not be understood'],
  invalid_upload: [400, 'The body is not a file, or its end is missing; send it again'],
  invalid_delegation: [400, 'The delegation cannot be used'],
  invalid_rules: [400, 'The token does not hold rules that this oracle can use'],
  invalid_invitation: [400, 'This is not a valid invitation to this oracle'],
  invalid_archive: [400, 'The archive cannot be imported'],
  access_revoked: [401, 'The access that this turn relied on was revoked'],
  missing_authentication: [
    401,
    'Missing UCAN authentication: provide Authorization: Bearer <invocation> with X-Auth-Type: ucan, or an x-ucan-delegation header',
  ],
  invalid_invocation: [401, 'Invalid UCAN invocation'],
  invalid_access_key: [401, 'Invalid access key: it is unknown, expired or revoked'],
  insufficient_credit: [402, 'Out of credit: settle the outstanding claims, then send again'],
  foreign_delegation: [403, 'The delegation was issued by another user'],
  invalid_decision: [403, 'The invocation does not sign this decision'],
  own_key_required: [
    403,
    'A delegation, which other services may also know, is not enough for this: sign in with your own key, with Authorization: Bearer <invocation> and X-Auth-Type: ucan',
  ],
  decision_unsigned: [
    403,
    'An approval needs your signature: send an invocation of oracle/approve, or deny the call',
  ],
  caller_not_allowed: [
    403,
    'This oracle is open to invited users only. Ask its operator for an invitation.',
  ],
  access_key_too_narrow: [403, 'This access key does not permit that'],
  caller_blocked: [403, 'The operator of this oracle has blocked you. Contact the operator.'],
  delegation_ended: [403, 'The delegation that this turn runs under was revoked or has expired'],
  origin_not_allowed: [403, 'This origin may not connect'],
  invalid_confirmation: [403, 'The invocation does not confirm this'],
  forbidden: [403, 'This is not allowed'],
  session_not_found: [404, 'No such session'],
  run_not_found: [404, 'No such run'],
  message_not_found: [404, 'No such message in this session'],
  interrupt_not_found: [404, 'No such pending answer'],
  approval_not_found: [404, 'No such approval'],
  receipt_not_found: [404, 'There is no receipt: this decision was not signed, or not made'],
  schedule_not_found: [404, 'No such schedule'],
  link_not_found: [404, 'No such link'],
  import_not_found: [404, 'No such import'],
  delegation_not_found: [404, 'No such delegation'],
  access_key_not_found: [404, 'No such access key'],
  file_not_found: [404, 'No such file'],
  not_found: [404, 'No such route; /docs lists them'],
  method_not_allowed: [
    405,
    'This method is not allowed here; the Allow header lists those that are',
  ],
  request_timeout: [408, 'The request did not arrive in time; send it faster'],
  turn_running: [409, 'A turn is running in this session'],
  queue_full: [409, 'Too many turns wait in this session; send again when one has ended'],
  too_many_sessions: [
    409,
    'You have as many sessions as this host keeps for one user; delete some, then open another',
  ],
  too_many_access_keys: [
    409,
    'You have as many access keys as this host keeps for one user; revoke some, then register another',
  ],
  not_queued: [
    409,
    'Only a message that waits can be withdrawn; this turn has begun or ended. Abort it instead.',
  ],
  message_withdrawn: [409, 'This message was withdrawn before it was answered'],
  too_many_schedules: [
    409,
    'You have as many schedules as this host keeps for one user; delete some, then create another',
  ],
  turn_interrupted: [409, 'This turn was interrupted before it was answered'],
  interrupt_closed: [
    409,
    'This was already answered, or the turn no longer waits for it; read the session again',
  ],
  approval_closed: [
    409,
    'This call was already decided, has expired, or no longer waits; read the approval again',
  ],
  key_changed: [
    409,
    'This was encrypted with an earlier key of this oracle and cannot be read any more; store it again',
  ],
  rules_replaced: [409, 'This token was replaced by newer rules: sign a new one'],
  import_running: [409, 'Your last import is still running; wait until it has ended'],
  idempotency_conflict: [409, 'This Idempotency-Key was used with another body'],
  invitation_used: [409, 'This invitation has been used. Ask the operator for a new one.'],
  invitation_expired: [410, 'This invitation has expired. Ask the operator for a new one.'],
  body_too_large: [413, 'The body is larger than this host accepts'],
  file_too_large: [413, 'The file is larger than this host accepts'],
  file_space_exhausted: [
    413,
    'Your files use all the space that this host keeps for one user; delete some, then upload again',
  ],
  unsupported_media_type: [415, 'The body must be application/json in UTF-8'],
  range_not_satisfiable: [416, 'The file has no such bytes; Content-Range says how many it has'],
  response_schema_mismatch: [422, "The model's answer does not fit the schema of the message"],
  turn_too_long: [422, 'The turn reached a limit of this host and was stopped'],
  rate_limited: [429, 'Too many requests. Try again after the time in Retry-After.'],
  too_many_turns: [429, 'You have too many running turns. Send again when one has ended.'],
  address_busy: [
    429,
    'Your network address uses its share of what this host does at the same time; try again later',
  ],
  too_many_paused: [
    429,
    'Too many of your turns wait for an answer; answer or abort some, then send again',
  ],
  access_key_used_up: [
    429,
    'This access key has used its turns of today. Try again after midnight UTC.',
  ],
  too_many_streams: [
    429,
    'You have too many requests waiting for answers; send again when one has ended',
  ],
  too_many_exports: [
    429,
    'Your last export is still running, or this host writes as many as it can; try again later',
  ],
  too_many_sockets: [429, 'Too many open sockets; close one, then connect again'],
  too_many_bodies: [
    429,
    'Your address is sending too much at once; wait for the answers, then send again',
  ],
  upload_limit_reached: [
    429,
    'You, or your network address, have sent as much as this host stores in a day; try again after the time in Retry-After',
  ],
  too_many_uploads: [429, 'Too many files are being uploaded; wait until one has ended'],
  headers_too_large: [431, 'The request headers are larger than this host accepts'],
  internal_error: [500, 'Internal server error'],
  files_full: [
    503,
    'The files on this host use all the space that it keeps for them; try again later',
  ],
  uploads_full: [503, 'The host is receiving as many files as it can; try again'],
  sockets_full: [503, 'The host has too many open sockets; try again later'],
  store_unavailable: [503, 'The store is not available; try again'],
  bodies_too_large: [503, 'The host is reading too many large bodies; try again'],
  disk_full: [503, 'The disk of this host is almost full; try again later'],
  host_stopping: [503, 'The host is stopping; try again'],
  gate_unavailable: [503, 'Cannot check whether this message is allowed. Try again.'],
  plugin_failed: [503, 'A plugin that this message depends on failed; try again'],
  verification_busy: [
    503,
    'This host is verifying as many callers as it can. Try again in a few seconds.',
  ],
  model_unavailable: [503, 'The model is not available; try again'],
  imports_busy: [503, 'This host imports as much as it can; try again later'],
  host_busy: [503, 'This host is running as many turns as it can. Try again in a few seconds.'],
  model_budget_exhausted: [
    503,
    'This host has used up its model budget for today. Try again after midnight UTC.',
  ],
} as const satisfies Record<string, readonly [status: number, message: string]>;

export type ErrorCode = keyof typeof errorCatalog;

export interface OracleErrorOptions extends ErrorOptions {
  /** Replaces the catalog's text; an array has one line per field. */
  readonly message?: string | readonly string[];
  /** Fields the body carries beside the usual ones, such as `claims` of a 402. */
  readonly fields?: Readonly<Record<string, unknown>>;
  readonly retryAfterSeconds?: number;
}

/** The one error thrown on purpose; any other is a bug and becomes `internal_error`. */
export class OracleError extends Error {
  override readonly name = 'OracleError';
  readonly code: ErrorCode;
  readonly status: number;
  readonly lines: readonly string[] | undefined;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly retryAfterSeconds: number | undefined;

  constructor(code: ErrorCode, options: OracleErrorOptions = {}) {
    const [status, text] = errorCatalog[code];
    const { message = text } = options;
    super(typeof message === 'string' ? message : message.join('; '), options);
    this.code = code;
    this.status = status;
    this.lines = typeof message === 'string' ? undefined : message;
    this.fields = options.fields ?? {};
    this.retryAfterSeconds = options.retryAfterSeconds;
  }
}

/** Body of every error answer. */
export const ErrorBody = z
  .object({
    statusCode: z.int(),
    message: z.union([z.string(), z.array(z.string())]),
    error: z.string(),
    code: z.string(),
    requestId: z.string(),
    claims: z.array(z.string()).optional(),
    outstandingClaims: z.array(z.string()).optional(),
  })
  .meta({ id: 'Error', description: 'What was wrong and, in `code`, a stable word for programs.' });
export type ErrorBody = z.infer<typeof ErrorBody>;

/** The outcome of a function that does not throw on invalid input: a value or an error. */
export type Result<T, E> =
  | { readonly ok: T; readonly error?: never }
  | { readonly ok?: never; readonly error: E };
