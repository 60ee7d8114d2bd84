import type { Result } from '@sibyl/protocol';
import { LruMap, textBytes } from '@sibyl/protocol/lru-map';
import { type Clock, systemClock } from '../codec/ucan.js';
import {
  createSingleFlight,
  type DidError,
  type DidKeys,
  type DidResolver,
} from './did-resolver.js';

const KEYS_TTL = { min: 60, max: 300 };
const FAULT_TTL_MAX = 10;

/** Errors that asking again at once would not change; an unavailable source may be back. */
const LASTING: ReadonlySet<DidError['code']> = new Set([
  'did_not_found',
  'did_invalid',
  'did_deactivated',
]);

export interface CachedResolverOptions {
  readonly resolver: DidResolver;
  readonly clock?: Clock | undefined;
  /** How long keys count, between 60 and 300 s; 300 by default. A rotated key is trusted that long. */
  readonly keysTtlSeconds?: number | undefined;
  /** How long a refusal counts, at most and by default 10 s. */
  readonly errorTtlSeconds?: number | undefined;
  /** What the answers of either kind may take in memory; 1 MiB by default. */
  readonly cacheBytes?: number | undefined;
  /** Lookups in progress at most, 50 by default; beyond it the error is `did_busy`. */
  readonly maxPending?: number | undefined;
}

interface Cached {
  readonly result: Result<DidKeys, DidError>;
  readonly expires: number;
}

/** Remembers what a slow resolver answered; put it around network methods only, did:key needs none. */
export function createCachedResolver(options: CachedResolverOptions): DidResolver {
  const { resolver, clock = systemClock, cacheBytes = 1024 * 1024 } = options;
  const keysTtl = clamp(options.keysTtlSeconds ?? KEYS_TTL.max, KEYS_TTL.min, KEYS_TTL.max);
  const faultTtl = clamp(options.errorTtlSeconds ?? FAULT_TTL_MAX, 0, FAULT_TTL_MAX);
  const limits = { maxBytes: cacheBytes, measure: measureAnswer };
  const found = new LruMap<string, Cached>(limits);
  // Apart from the keys, so that a flood of invented DIDs cannot push real ones out.
  const refused = new LruMap<string, Cached>(limits);
  const resolve = createSingleFlight(async (did) => {
    const result = await resolver.resolve(did);
    found.delete(did);
    refused.delete(did);
    if (result.ok) found.set(did, { result, expires: clock() + keysTtl });
    else if (LASTING.has(result.error.code)) {
      refused.set(did, { result, expires: clock() + faultTtl });
    }
    return result;
  }, options.maxPending);
  const findCached = (did: string) => {
    const cached = found.get(did) ?? refused.get(did);
    return cached && clock() < cached.expires ? cached.result : undefined;
  };
  return {
    resolve: async (did) => findCached(did) ?? resolve(did),
    needsLookup: (did) => findCached(did) === undefined,
  };
}

/** A key is a typed array with its own buffer. */
const KEY_BYTES = 200;

function measureAnswer({ result }: Cached, did: string): number {
  const answer = result.ok ? result.ok.length * KEY_BYTES : textBytes(result.error.detail);
  return textBytes(did) + answer + 200;
}

function clamp(value: number, min: number, max: number): number {
  return Math.min(Math.max(value, min), max);
}
