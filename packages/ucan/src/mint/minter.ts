import type { Result } from '@sibyl/protocol';
import { LruMap, textBytes } from '@sibyl/server-kit';
import { encodeDagJson } from '../codec/ipld.js';
import { type Clock, type MintedToken, systemClock } from '../codec/ucan.js';
import type { UcanError } from '../errors.js';
import type { Signer } from '../keys/signer.js';
import { type InvocationRequest, mintInvocation } from './mint.js';

export type MintRequest = Omit<InvocationRequest, 'signer' | 'clock'>;

/** Mints invocations and reuses them while they are fresh. */
export interface Minter {
  readonly did: string;
  mint(request: MintRequest): Result<MintedToken, UcanError>;
  /** Drops everything minted from a delegation and says how many there were. */
  forget(delegationCid: string): number;
}

interface Entry {
  readonly minted: MintedToken;
  readonly delegationCids: readonly string[];
  readonly renewAt: number;
}

/** Fewer seconds than this are too few to be handed out again. */
const MIN_LEFT_SECONDS = 30;

/** Builds a minter for one signer, with its own bounded cache. */
export function createMinter(options: {
  readonly signer: Signer;
  readonly clock?: Clock;
  /** What the cache may take in memory; 8 MiB by default. */
  readonly cacheBytes?: number;
}): Minter {
  const { signer, clock = systemClock, cacheBytes = 8 * 1024 * 1024 } = options;
  const entries = new LruMap<string, Entry>({ maxBytes: cacheBytes, measure: measureEntry });
  return {
    did: signer.did,
    mint(request) {
      const key = buildCacheKey(request);
      const known = entries.get(key);
      const now = clock();
      if (known && now < known.renewAt) return { ok: known.minted };
      const minted = mintInvocation({ ...request, signer, clock: () => now });
      if (minted.ok) entries.set(key, createEntry(minted.ok, request, now));
      return minted;
    },
    forget: (cid) => entries.deleteWhere(({ delegationCids }) => delegationCids.includes(cid)),
  };
}

function measureEntry({ minted, delegationCids }: Entry, key: string): number {
  const texts = [key, minted.cid, minted.token, ...delegationCids];
  return texts.reduce((bytes, text) => bytes + textBytes(text), 200);
}

/** User, delegation, service, ability, resource and caveats; a change of any mints again. */
function buildCacheKey({
  delegation,
  audience,
  can,
  with: resource,
  nb,
  ttlSeconds,
}: MintRequest): string {
  const caveats = encodeDagJson(nb ?? {});
  return JSON.stringify([
    delegation.did,
    delegation.cid,
    audience,
    can,
    resource,
    caveats,
    ttlSeconds ?? null,
  ]);
}

function createEntry(minted: MintedToken, { delegation }: MintRequest, now: number): Entry {
  const half = now + (minted.expiration - now) / 2;
  return {
    minted,
    delegationCids: delegation.cids,
    renewAt: Math.min(half, minted.expiration - MIN_LEFT_SECONDS),
  };
}
