import { LruMap, textBytes } from '@sibyl/protocol/lru-map';
import type { Clock } from '../codec/ucan.js';

/** Knows which UCANs were revoked, by CID. */
export interface Revocations {
  isRevoked(cid: string): boolean | Promise<boolean>;
}

export interface RevocationSet extends Revocations {
  isRevoked(cid: string): boolean;
  /** Remembers a CID until it expires anyway; false when the set is full of unexpired ones. */
  add(cid: string, expiresAt: number): boolean;
  readonly size: number;
}

/** Revoked CIDs in memory. */
export function createRevocationSet(options: {
  readonly clock: Clock;
  /** What the set may take in memory; 16 MiB by default. */
  readonly maxBytes?: number;
}): RevocationSet {
  const { clock, maxBytes = 16 * 1024 * 1024 } = options;
  const expiries = createExpiringCids({ clock, maxBytes });
  return {
    isRevoked: (cid) => (expiries.get(cid) ?? 0) > clock(),
    add(cid, expiresAt) {
      const known = expiries.get(cid);
      if (known === undefined && !expiries.makeRoom()) return false;
      expiries.set(cid, Math.max(expiresAt, known ?? 0));
      return true;
    },
    get size() {
      return expiries.size;
    },
  };
}

interface ExpiringCids {
  readonly clock: Clock;
  readonly maxBytes: number;
}

/** CIDs and when each may be forgotten; unlike a cache it never drops one before. */
export function createExpiringCids({ clock, maxBytes }: ExpiringCids) {
  const entries = new LruMap<string, number>({
    // Never reached: nothing is added while the entries take `maxBytes`.
    maxBytes: Number.POSITIVE_INFINITY,
    measure: (_, cid) => textBytes(cid),
  });
  let sweptAt = Number.NEGATIVE_INFINITY;
  return {
    get: (cid: string) => entries.get(cid),
    set: (cid: string, expiresAt: number) => void entries.set(cid, expiresAt),
    delete: (cid: string) => entries.delete(cid),
    /** Forgets what has expired if that is needed; whether there is room for another. */
    makeRoom(): boolean {
      const now = clock();
      // Once a second at most: while it is full, every call would look at every entry.
      if (entries.bytes >= maxBytes && now !== sweptAt) {
        sweptAt = now;
        entries.deleteWhere((expiresAt) => expiresAt <= now);
      }
      return entries.bytes < maxBytes;
    },
    get size() {
      return entries.size;
    },
  };
}

/** Remembers which single-use tokens were spent, by canonical CID. */
export interface SingleUseStore {
  /** Takes the CID, atomically; false when it is taken already or there is no room for it. */
  claim(cid: string, expiresAt: number): Promise<boolean>;
  /** Releases a CID whose token turned out to be invalid. */
  release(cid: string): Promise<void>;
}

/** Knows which UCANs were accepted as single-use tokens, by CID. */
export interface SpentTokens {
  has(cid: string): boolean | Promise<boolean>;
}

/** Spent tokens in the memory of one process; when full it refuses rather than forgets. */
export function createMemorySingleUseStore(options: {
  /** What the store may take in memory; 4 MiB by default. */
  readonly maxBytes?: number;
  readonly clock: Clock;
}): SingleUseStore & SpentTokens {
  const { maxBytes = 4 * 1024 * 1024, clock } = options;
  const expiries = createExpiringCids({ clock, maxBytes });
  const has = (cid: string) => (expiries.get(cid) ?? 0) > clock();
  return {
    has,
    async claim(cid, expiresAt) {
      if (has(cid) || !expiries.makeRoom()) return false;
      expiries.set(cid, expiresAt);
      return true;
    },
    async release(cid) {
      expiries.delete(cid);
    },
  };
}
