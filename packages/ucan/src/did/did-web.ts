import type { Result } from '@sibyl/protocol';
import {
  type DidFetch,
  FETCH_LIMITS,
  type FetchLimits,
  fetchJson,
  readDocumentKeys,
  unexpectedStatus,
} from './did-document.js';
import {
  createSingleFlight,
  type DidError,
  type DidResolver,
  didMethod,
  refuseDid,
} from './did-resolver.js';

const PREFIX = 'did:web:';
const HOST = /^([A-Za-z0-9.-]+)(?:%3[Aa](\d{1,5}))?$/;
const LOOPBACK = new Set(['localhost', '127.0.0.1']);

export interface DidWebOptions {
  readonly fetch: DidFetch;
  /** Asks loopback hosts over http, for development; every other host stays on https. */
  readonly allowHttp?: boolean | undefined;
  /** 256 KiB and 3 s by default. */
  readonly limits?: Partial<FetchLimits> | undefined;
}

/** Resolves did:web by asking the host that the DID names. */
export function createDidWebResolver(options: DidWebOptions): DidResolver {
  const limits = { ...FETCH_LIMITS, ...options.limits };
  const resolve = createSingleFlight(async (did) => {
    const { ok: secureUrl, error: urlError } = didWebUrl(did);
    if (urlError) return { error: urlError };
    const url = options.allowHttp ? withoutTlsOnLoopback(secureUrl) : secureUrl;
    const { ok: answer, error } = await fetchJson({ url, fetch: options.fetch, limits });
    if (error) return { error };
    const { status, json } = answer;
    if (status === 404 || status === 410) {
      return refuseDid('did_not_found', `${new URL(url).host} has no document for the DID`);
    }
    return status === 200 ? readDocumentKeys(json, did, 'required') : unexpectedStatus(url, status);
  });
  return { resolve };
}

/** Where the document of a did:web lies; always https. */
export function didWebUrl(did: string): Result<string, DidError> {
  if (didMethod(did) !== 'web') return refuseDid('did_invalid', 'not a did:web');
  const [authority = '', ...path] = did.slice(PREFIX.length).split(':');
  const [, host = '', port] = HOST.exec(authority) ?? [];
  const pathname = path.length === 0 ? '/.well-known/did.json' : `/${path.join('/')}/did.json`;
  const url = URL.parse(`https://${host}${port ? `:${port}` : ''}${pathname}`);
  // What URL would rewrite (0x7f.1, .., %2e) gives one document several DIDs, so it is refused.
  const isPlain = url?.hostname === host.toLowerCase() && url.pathname === pathname;
  if (!url || !isPlain || path.includes('') || /%(2f|5c|00)/i.test(pathname)) {
    return refuseDid('did_invalid', 'the did:web names no plain host and path');
  }
  return { ok: url.href };
}

function withoutTlsOnLoopback(url: string): string {
  const parsed = new URL(url);
  return LOOPBACK.has(parsed.hostname) ? url.replace('https:', 'http:') : url;
}

/** The did:web that the service at an address must prove to be. */
export function toDidWeb(address: string): Result<string, DidError> {
  const url = URL.parse(address);
  if (!url || !/^https?:$/.test(url.protocol) || url.username || url.search) {
    return refuseDid('did_invalid', 'a service address is http(s)://host/path');
  }
  const path = url.pathname.split('/').filter(Boolean);
  return { ok: ['did:web', url.host.replace(':', '%3A'), ...path].join(':') };
}
