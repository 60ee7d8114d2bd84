import { createSafeFetch, type SafeFetch } from '@sibyl/safe-fetch';
import {
  createCachedResolver,
  createDidIxoResolver,
  createDidKeyResolver,
  createDidResolver,
  createDidWebResolver,
  type DidResolver,
  systemClock,
} from '@sibyl/ucan';
import type { Config } from '../config/config.js';
import { findScope } from '../observability/spans.js';

/** The fetch of plugins: it reaches the public internet, plus OUTGOING_ALLOW, and passes the trace on. */
export function createPluginFetch({ outgoingAllow }: Config): SafeFetch {
  const fetch = createSafeFetch({ allow: outgoingAllow });
  return (url, init) => {
    const traceparent = findScope()?.traceparent;
    if (!traceparent) return fetch(url, init);
    const headers = new Headers(init?.headers);
    if (!headers.has('traceparent')) headers.set('traceparent', traceparent);
    return fetch(url, { ...init, headers });
  };
}

/** Resolves the DIDs of callers and services. */
export function createResolver({ chain, outgoingAllow }: Config): DidResolver {
  const methods = {
    key: createDidKeyResolver(),
    ixo: isChainConfigured(chain) ? cacheResolver(createIxoResolver(chain)) : undefined,
    web: cacheResolver(createWebResolver(outgoingAllow)),
  };
  return createDidResolver({ methods });
}

const cacheResolver = (resolver: DidResolver) =>
  createCachedResolver({ resolver, clock: systemClock });

const isChainConfigured = ({ restUrl, blocksyncUrl }: Config['chain']) =>
  restUrl !== undefined || blocksyncUrl !== undefined;

/** The operator chose these two addresses, so they may be inside the operator's network. */
function createIxoResolver({ restUrl, blocksyncUrl }: Config['chain']): DidResolver {
  const chosen = [restUrl, blocksyncUrl].filter((url) => url !== undefined);
  const fetch = createSafeFetch({ allow: chosen.map((url) => new URL(url).host) });
  return createDidIxoResolver({ chainRestUrl: restUrl, blocksyncUrl, fetch });
}

/** A did:web names an address that a caller chose: only the public internet is allowed, plus OUTGOING_ALLOW. */
const createWebResolver = (allow: readonly string[]): DidResolver =>
  createDidWebResolver({ fetch: createSafeFetch({ allow }), allowHttp: allow.length > 0 });
