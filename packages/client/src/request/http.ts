import type { OracleSigner } from '../signer/oracle-signer.js';
import { Bearer } from './bearer.js';
import { Discovery } from './discovery.js';
import { fetchReply, readJson } from './fetch-reply.js';
import { readRefusal } from './read-refusal.js';

export interface HttpOptions {
  /** Without a slash at its end. */
  readonly url: string;
  readonly signer: OracleSigner;
  readonly fetch: typeof globalThis.fetch;
  /** Sent with every request that needs authentication. */
  readonly headers: Readonly<Record<string, string>>;
}

export interface HttpRequest {
  readonly method?: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  readonly path: string;
  /** What is undefined is left out. */
  readonly query?: Readonly<Record<string, string | number | undefined>>;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal | undefined;
}

/** Sends requests to one oracle as one user. */
export class Http {
  readonly discovery: Discovery;
  readonly bearer: Bearer;
  readonly #options: HttpOptions;

  constructor(options: HttpOptions) {
    this.#options = options;
    this.discovery = new Discovery((path) => this.ask({ path }));
    this.bearer = new Bearer(options.signer, this.discovery);
  }

  /** Asks a public route. */
  async ask<T>({ path, signal }: Pick<HttpRequest, 'path' | 'signal'>): Promise<T> {
    const { fetch, url } = this.#options;
    const response = await fetchReply(fetch, url + path, { headers: {}, signal });
    return readJson(await accepted(response));
  }

  async json<T>(request: HttpRequest): Promise<T> {
    return readJson(await this.open(request));
  }

  /** Sends a request and returns the accepting answer; a refused token is replaced once. */
  async open(request: HttpRequest): Promise<Response> {
    const token = await this.bearer.token();
    const response = await this.#send(request, token);
    if (response.status !== 401) return accepted(response);
    await response.body?.cancel();
    return accepted(await this.#send(request, await this.bearer.replace(token)));
  }

  #send({ method = 'GET', signal, ...request }: HttpRequest, token: string): Promise<Response> {
    const { url, fetch } = this.#options;
    const { body } = request;
    return fetchReply(fetch, url + request.path + queryText(request.query), {
      method,
      signal,
      headers: {
        ...this.#options.headers,
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...request.headers,
        authorization: `Bearer ${token}`,
        'x-auth-type': 'ucan',
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
  }
}

async function accepted(response: Response): Promise<Response> {
  if (response.ok) return response;
  throw await readRefusal(response);
}

function queryText(query: HttpRequest['query'] = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  return given.length === 0 ? '' : `?${new URLSearchParams(given.map(([k, v]) => [k, `${v}`]))}`;
}
