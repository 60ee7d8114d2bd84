import { OracleClientError } from '../oracle-client-error.js';

/** One request, ready to be sent. */
export interface OutgoingRequest extends Omit<RequestInit, 'headers' | 'body' | 'signal'> {
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly signal?: AbortSignal | undefined;
}

/** Sends a request; that nobody answered becomes an error of ours, that the caller left stays his. */
export async function fetchReply(
  fetch: typeof globalThis.fetch,
  url: string,
  { signal, ...request }: OutgoingRequest,
): Promise<Response> {
  try {
    // No cookies: the bearer says who is calling, and `*` as CORS_ORIGIN forbids them.
    return await fetch(url, { ...request, credentials: 'omit', ...(signal && { signal }) });
  } catch (cause) {
    signal?.throwIfAborted();
    throw new OracleClientError('network_error', `No answer from ${new URL(url).origin}`, {
      cause,
    });
  }
}

/** The JSON of an answer. */
export async function readJson<T>(response: Response): Promise<T> {
  try {
    return await response.json();
  } catch (cause) {
    throw new OracleClientError('invalid_reply', `${response.url} did not answer with JSON`, {
      cause,
      status: response.status,
    });
  }
}
