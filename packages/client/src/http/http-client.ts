import type { ErrorBody } from '@sibyl/protocol';
import { OracleClientError } from '../errors.js';
import type { OracleSigner } from '../signers/signer.js';
import { BearerTokens, Discovery } from './bearer-tokens.js';

interface HttpClientOptions {
  /** Without a trailing slash. */
  readonly url: string;
  readonly signer: OracleSigner;
  readonly fetch: typeof globalThis.fetch;
  /** Sent with requests that need authentication. */
  readonly headers: (method: string) => Readonly<Record<string, string>>;
}

/** `signal` cancels the request; a turn that it started continues. */
export interface RequestOptions {
  readonly signal?: AbortSignal;
}

export interface PageOptions extends RequestOptions {
  readonly limit?: number;
  readonly offset?: number;
}

export interface HttpRequest {
  readonly method?: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  readonly path: string;
  /** Undefined values are omitted. */
  readonly query?: Readonly<Record<string, string | number | undefined>>;
  /** Sent as JSON. */
  readonly body?: unknown;
  /** Sent as it is. */
  readonly content?: Blob | Uint8Array<ArrayBuffer> | undefined;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal | undefined;
  /** Receives the share of the content that was sent, from 0 to 1; only in browsers. */
  readonly onProgress?: ((share: number) => void) | undefined;
}

/** An address loses empty and dotted segments: `/delegations/` is the route that revokes all of them. */
const EMPTY_SEGMENT = /\/\.{0,2}(?=\/|$)/;

/** Sends a user's requests to an oracle. */
export class HttpClient {
  readonly discovery: Discovery;
  readonly tokens: BearerTokens;
  private readonly options: HttpClientOptions;

  constructor(options: HttpClientOptions) {
    this.options = options;
    this.discovery = new Discovery((path, signal) => this.getPublic({ path, signal }));
    this.tokens = new BearerTokens(options.signer, this.discovery);
  }

  /** Requests a route that needs no authentication. */
  async getPublic<T>({ path, signal }: Pick<HttpRequest, 'path' | 'signal'>): Promise<T> {
    const { fetch, url } = this.options;
    const response = await sendRequest(fetch, url + path, { headers: {}, signal });
    assertSameOrigin(response, { url, path });
    return readJson(await requireOk(response, signal), signal);
  }

  /** Requests a JSON document; `options` without the signal are the query. */
  async get<T>(path: string, options: RequestOptions & object = {}): Promise<T> {
    const { signal, ...query } = options;
    return this.requestJson({ path, query, signal });
  }

  async requestJson<T>(request: HttpRequest): Promise<T> {
    return readJson(await this.request(request), request.signal);
  }

  /** Sends a request, with a new token if the first is rejected; throws on an error status. */
  async request(request: HttpRequest): Promise<Response> {
    const { path, signal } = request;
    if (EMPTY_SEGMENT.test(path))
      throw new OracleClientError('bad_request', `Invalid id in ${path}: it is empty or dots`);
    const token = await abortable(this.tokens.get(), signal);
    const response = await this.send(request, token);
    if (response.status !== 401) return requireOk(response, signal);
    await response.body?.cancel();
    const replaced = await abortable(this.tokens.replace(token), signal);
    return requireOk(await this.send(request, replaced), signal);
  }

  private send(
    { method = 'GET', signal, ...request }: HttpRequest,
    token: string,
  ): Promise<Response> {
    const { url, fetch } = this.options;
    const { body, content, onProgress } = request;
    const send = onProgress && globalThis.XMLHttpRequest ? fetchWithProgress(onProgress) : fetch;
    return sendRequest(send, url + request.path + buildQuery(request.query), {
      method,
      signal,
      headers: {
        ...this.options.headers(method),
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...request.headers,
        authorization: `Bearer ${token}`,
        'x-auth-type': 'ucan',
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      ...(content !== undefined && { body: content }),
    });
  }
}

/** Throws if another origin answered, such as https: for http:. No token would arrive there: `fetch` removes it. */
function assertSameOrigin(
  response: Response,
  { url, path }: { readonly url: string; readonly path: string },
): void {
  if (!response.redirected || new URL(response.url).origin === new URL(url).origin) return;
  const address = response.url.endsWith(path) ? response.url.slice(0, -path.length) : response.url;
  throw new OracleClientError('invalid_reply', `${url} redirects to ${address}: use that address`);
}

/** Waits for what other requests wait for as well; an abort throws the caller's reason. */
function abortable<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return work;
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    signal.addEventListener('abort', abort);
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
    if (signal.aborted) abort();
  });
}

async function requireOk(response: Response, signal: AbortSignal | undefined): Promise<Response> {
  if (response.ok) return response;
  const error = await readError(response);
  signal?.throwIfAborted();
  throw error;
}

function buildQuery(query: HttpRequest['query'] = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  return given.length === 0 ? '' : `?${new URLSearchParams(given.map(([k, v]) => [k, `${v}`]))}`;
}

interface OutgoingRequest extends Omit<RequestInit, 'headers' | 'body' | 'signal'> {
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | Blob | Uint8Array<ArrayBuffer>;
  readonly signal?: AbortSignal | undefined;
}

/** Wraps network failures in an OracleClientError; an abort throws the caller's reason. */
async function sendRequest(
  fetch: typeof globalThis.fetch,
  url: string,
  { signal, ...request }: OutgoingRequest,
): Promise<Response> {
  try {
    // No cookies: the bearer token identifies the user, and CORS_ORIGIN=* forbids credentials.
    return await fetch(url, { ...request, credentials: 'omit', ...(signal && { signal }) });
  } catch (cause) {
    signal?.throwIfAborted();
    const message = `Cannot reach ${new URL(url).origin}${describeReason(cause)}`;
    throw new OracleClientError('network_error', message, { cause });
  }
}

/** Such as an unknown name or an invalid certificate; browsers do not say. */
function describeReason(error: unknown): string {
  const { cause } = error as Error;
  if (!(cause instanceof Error)) return '';
  return `: ${cause.message || (cause as NodeJS.ErrnoException).code}`;
}

/** Like `fetch`, which cannot report the progress of an upload. */
const fetchWithProgress =
  (onProgress: (share: number) => void): typeof globalThis.fetch =>
  (url, { method = 'GET', headers, body, signal } = {}) =>
    new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const request = new XMLHttpRequest();
      request.open(method, String(url));
      for (const [name, value] of Object.entries(headers ?? {}))
        request.setRequestHeader(name, value);
      request.upload.onprogress = ({ loaded, total }) => onProgress(total ? loaded / total : 0);
      request.onload = () => {
        const { status, responseText } = request;
        const wait = request.getResponseHeader('retry-after');
        resolve(
          new Response(responseText, { status, headers: wait ? { 'retry-after': wait } : {} }),
        );
      };
      request.onerror = () => reject(new TypeError('The upload failed'));
      request.onabort = () => reject(signal?.reason);
      signal?.addEventListener('abort', () => request.abort());
      request.send(body as XMLHttpRequestBodyInit);
    });

/** The connection may also break, or the caller abort, while the body arrives. */
async function readJson<T>(response: Response, signal: AbortSignal | undefined): Promise<T> {
  const text = await response.text().catch((cause) => {
    signal?.throwIfAborted();
    const message = 'The connection broke before the reply was complete';
    throw new OracleClientError('network_error', message, { cause });
  });
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new OracleClientError('invalid_reply', `${response.url} did not return JSON`, {
      cause,
      status: response.status,
    });
  }
}

async function readError(response: Response): Promise<OracleClientError> {
  const { status } = response;
  const body = await response.json().catch(() => undefined);
  if (!isErrorBody(body)) {
    const wait = readRetryAfter(response);
    const { retryAfterSeconds: seconds } = wait;
    const unit = seconds === 1 ? 'second' : 'seconds';
    const advice = seconds ? `. Try again in ${seconds} ${unit}` : '';
    const message = `${response.url} returned status ${status}${advice}`;
    return new OracleClientError('invalid_reply', message, { status, ...wait });
  }
  const lines = typeof body.message === 'string' ? [] : body.message;
  const message = typeof body.message === 'string' ? body.message : body.message.join('; ');
  return new OracleClientError(body.code, message, {
    status,
    lines,
    requestId: body.requestId,
    ...readRetryAfter(response),
    ...(body.claims && { claims: body.claims }),
  });
}

function isErrorBody(body: unknown): body is ErrorBody {
  const { code, message } = (body ?? {}) as Partial<ErrorBody>;
  return typeof code === 'string' && (typeof message === 'string' || Array.isArray(message));
}

/** Undefined on pages of another origin, which cannot read this header. */
function readRetryAfter({ headers }: Response): { readonly retryAfterSeconds?: number } {
  const text = headers.get('retry-after') ?? '';
  // Seconds, or a date.
  const seconds = /^\d+$/.test(text) ? Number(text) : (Date.parse(text) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? { retryAfterSeconds: Math.max(0, Math.ceil(seconds)) } : {};
}
