import { createSafeFetch } from '@sibyl/safe-fetch';
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

/** Finds the keys of callers and services, each method where the configuration points it. */
export function createResolver({ chain, outgoingAllow }: Config): DidResolver {
  const methods = {
    key: createDidKeyResolver(),
    ixo: isChainConfigured(chain) ? cached(createIxoResolver(chain)) : undefined,
    web: cached(createWebResolver(outgoingAllow)),
  };
  return createDidResolver({ methods });
}

const cached = (resolver: DidResolver) => createCachedResolver({ resolver, clock: systemClock });

const isChainConfigured = ({ restUrl, blocksyncUrl }: Config['chain']) =>
  restUrl !== undefined || blocksyncUrl !== undefined;

/** The operator chose these two addresses, so they may be inside the operator's network. */
function createIxoResolver({ restUrl, blocksyncUrl }: Config['chain']): DidResolver {
  const chosen = [restUrl, blocksyncUrl].filter((url) => url !== undefined);
  const fetch = createSafeFetch({ allow: chosen.map((url) => new URL(url).host) });
  return createDidIxoResolver({ chainRestUrl: restUrl, blocksyncUrl, fetch });
}

/** A did:web names the address itself: only the public internet, unless allow-listed. */
function createWebResolver(allow: readonly string[]): DidResolver {
  return createDidWebResolver({ fetch: createSafeFetch({ allow }), allowHttp: allow.length > 0 });
}
