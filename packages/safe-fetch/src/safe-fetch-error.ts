export type SafeFetchErrorCode =
  | 'url_invalid'
  | 'scheme_refused'
  | 'address_refused'
  | 'too_large'
  | 'timeout'
  | 'too_many_redirects'
  | 'busy'
  | 'network';

/**
 * The one error of a safe fetch. Its message says what was wrong and what to do, never a path, query, header or an address
 * that a name resolves to: it may be shown to strangers. Its cause is for logs.
 */
export class SafeFetchError extends Error {
  override readonly name = 'SafeFetchError';

  constructor(
    readonly code: SafeFetchErrorCode,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** Keeps a SafeFetchError, names anything else a network failure. */
export function toSafeFetchError(error: unknown, host: string): SafeFetchError {
  if (error instanceof SafeFetchError) return error;
  const reason = (error as { code?: unknown } | undefined)?.code;
  const detail = typeof reason === 'string' ? ` (${reason})` : '';
  return new SafeFetchError(
    'network',
    `The request to ${host} failed${detail}; check that the server is up and speaks HTTP.`,
    { cause: error },
  );
}
