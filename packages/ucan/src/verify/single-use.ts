import type { Clock } from '../codec/ucan.js';
import { refuse, type UcanError } from '../errors.js';
import type { Ucan } from '../read/token.js';
import { createExpiringCids } from './revocations.js';

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

/** Refuses a chain of which any link was accepted once: it was made for that one call. */
export async function checkSpent(
  cids: Iterable<string>,
  spent: SpentTokens,
): Promise<UcanError | undefined> {
  try {
    for (const cid of cids) {
      if (await spent.has(cid)) return refuse('single_use', cid).error;
    }
    return undefined;
  } catch (cause) {
    return refuse('replay_store_unavailable', String(cause).slice(0, 200)).error;
  }
}

/** How long a spent token is remembered beyond its expiry. */
const KEEP_SECONDS = 60;

/** Claims the token before it is verified, and releases it if the verification fails. */
export async function spendOnce(
  { cid, expiration }: Ucan,
  store: SingleUseStore,
  prove: () => Promise<UcanError | undefined>,
): Promise<UcanError | undefined> {
  try {
    const isFirst = await store.claim(cid, (expiration ?? 0) + KEEP_SECONDS);
    if (!isFirst) return refuse('replayed', 'spent before, or no room to remember it').error;
  } catch (cause) {
    return refuse('replay_store_unavailable', String(cause).slice(0, 200)).error;
  }
  const error = await prove();
  // If the store cannot release it, the token is lost, but never spent twice.
  if (error) await store.release(cid).catch(() => undefined);
  return error;
}
