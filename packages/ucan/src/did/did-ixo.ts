import { refuseDid } from './did-fault.js';
import type { DidResolver } from './did-resolver.js';
import { didMethod } from './did-syntax.js';
import { type DidFetch, FETCH_LIMITS, type FetchLimits } from './document/fetch-json.js';
import { createBlocksyncResolver } from './ixo/blocksync.js';
import { createChainResolver } from './ixo/chain-rest.js';
import { createSingleFlight } from './single-flight.js';

export interface DidIxoOptions {
  readonly chainRestUrl?: string | undefined;
  readonly blocksyncUrl?: string | undefined;
  readonly fetch: DidFetch;
  /** 256 KiB and 3 s for each request unless told. */
  readonly limits?: Partial<FetchLimits> | undefined;
  /** Lookups in progress at most, 50 by default; beyond it the fault is `did_busy`. */
  readonly maxPending?: number | undefined;
}

/** Said to whoever brings a did:ixo to a host without a source for it. */
export const IXO_NEEDS = 'did:ixo needs CHAIN_REST_URL or BLOCKSYNC_GRAPHQL_URL';

/** Resolves did:ixo from the chain, and from Blocksync when the chain is not configured or not available. */
export function createDidIxoResolver(options: DidIxoOptions): DidResolver {
  const sources = sourcesOf(options);
  const resolve = createSingleFlight((did) => askInTurn(sources, did), options.maxPending);
  return {
    async resolve(did) {
      // Percent signs would be read differently by the chain's path and by Blocksync's variable.
      if (didMethod(did) !== 'ixo' || did.includes('%')) {
        return refuseDid('did_invalid', 'not a did:ixo');
      }
      return resolve(did);
    },
  };
}

function sourcesOf({ chainRestUrl, blocksyncUrl, fetch, limits }: DidIxoOptions): DidResolver[] {
  const common = { fetch, limits: { ...FETCH_LIMITS, ...limits } };
  return [
    ...(chainRestUrl ? [createChainResolver({ ...common, url: chainRestUrl })] : []),
    ...(blocksyncUrl ? [createBlocksyncResolver({ ...common, url: blocksyncUrl })] : []),
  ];
}

/** Only an unavailable source passes the question on: any other answer is final. */
async function askInTurn(sources: readonly DidResolver[], did: string) {
  const details: string[] = [];
  for (const source of sources) {
    const result = await source.resolve(did);
    if (result.error?.code !== 'did_unavailable') return result;
    details.push(result.error.detail);
  }
  if (details.length === 0) return refuseDid('did_unsupported', IXO_NEEDS);
  return refuseDid('did_unavailable', details.join('; '));
}
