import type { Result } from '@sibyl/protocol';
import { type DidError, refuseDid } from './did-resolver.js';

/** fetch, as the host provides it: a DID may name any server, so it should refuse private networks. */
export type DidFetch = (url: string, init?: RequestInit) => Promise<Response>;

export interface FetchLimits {
  readonly maxBytes: number;
  readonly timeoutMs: number;
}

export const FETCH_LIMITS: FetchLimits = { maxBytes: 256 * 1024, timeoutMs: 3000 };

interface JsonRequest {
  readonly url: string;
  readonly fetch: DidFetch;
  readonly limits: FetchLimits;
  /** Sent as a JSON POST; without it the request is a GET. */
  readonly body?: unknown;
}

export interface JsonAnswer {
  readonly status: number;
  /** Undefined when an error status came with something other than JSON. */
  readonly json: unknown;
}

/** Asks once, within the limits and without following redirects; any network trouble is `did_unavailable`. */
export async function fetchJson(request: JsonRequest): Promise<Result<JsonAnswer, DidError>> {
  const host = readHost(request.url);
  try {
    const response = await request.fetch(request.url, buildInit(request));
    const bytes = await readBytes(response, request.limits.maxBytes);
    if (!bytes) return refuseDid('did_invalid', `${host} answered with too large a document`);
    const json = parseJson(bytes);
    if (response.ok && json === undefined) {
      return refuseDid('did_invalid', `${host} answered with something other than JSON`);
    }
    return { ok: { status: response.status, json } };
  } catch (error) {
    const reason = error instanceof Error ? error.message.replace(/\.$/, '') : 'unknown failure';
    return refuseDid('did_unavailable', `${host} could not be asked: ${reason}`);
  }
}

/** The error of a status that is neither an answer nor a plain "not found". */
export function unexpectedStatus(url: string, status: number): { readonly error: DidError } {
  return refuseDid('did_unavailable', `${readHost(url)} answered ${status}`);
}

/** Enough for the log; the rest of a configured URL may hold a key. */
function readHost(url: string): string {
  return URL.parse(url)?.host ?? 'an invalid URL';
}

function buildInit({ body, limits }: JsonRequest): RequestInit {
  const accept = 'application/json, application/did+json';
  const common = { redirect: 'error', signal: AbortSignal.timeout(limits.timeoutMs) } as const;
  if (body === undefined) return { ...common, headers: { accept } };
  return {
    ...common,
    method: 'POST',
    headers: { accept, 'content-type': 'application/json' },
    body: JSON.stringify(body),
  };
}

/** Undefined past the limit; the rest is left unread. */
async function readBytes(response: Response, maxBytes: number): Promise<Uint8Array | undefined> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  // Leaving the loop early cancels the stream.
  for await (const chunk of response.body ?? []) {
    length += chunk.length;
    if (length > maxBytes) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    return undefined;
  }
}
