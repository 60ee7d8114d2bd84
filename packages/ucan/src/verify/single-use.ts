import type { Clock } from '../clock.js';
import { refuse, type UcanFault } from '../fault.js';
import type { Ucan } from '../gate/token.js';

/** Remembers which single-use tokens were spent, by canonical CID. */
export interface SingleUseStore {
  /** Takes the CID, atomically; false when it is taken already or there is no room for it. */
  claim(cid: string, expiresAt: number): Promise<boolean>;
  /** Gives back a CID whose token turned out to be invalid. */
  release(cid: string): Promise<void>;
}

/** Spent tokens in the memory of one process; when full it refuses rather than forgets. */
export function createMemorySingleUseStore(options: {
  readonly capacity?: number;
  readonly clock: Clock;
}): SingleUseStore {
  const { capacity = 10_000, clock } = options;
  const expiryOf = new Map<string, number>();
  const sweep = () => {
    for (const [cid, expiresAt] of expiryOf) if (expiresAt <= clock()) expiryOf.delete(cid);
  };
  return {
    async claim(cid, expiresAt) {
      if ((expiryOf.get(cid) ?? 0) > clock()) return false;
      if (expiryOf.size >= capacity) sweep();
      if (expiryOf.size >= capacity) return false;
      expiryOf.set(cid, expiresAt);
      return true;
    },
    async release(cid) {
      expiryOf.delete(cid);
    },
  };
}

/** How long a spent token is remembered beyond its expiry. */
const KEEP_SECONDS = 60;

/** Takes the token before it is proven, and gives it back if the proof fails. */
export async function spendOnce(
  { cid, expiration }: Ucan,
  store: SingleUseStore,
  prove: () => Promise<UcanFault | undefined>,
): Promise<UcanFault | undefined> {
  try {
    const isFirst = await store.claim(cid, (expiration ?? 0) + KEEP_SECONDS);
    if (!isFirst) return refuse('replayed', 'spent before, or no room to remember it').error;
  } catch (cause) {
    return refuse('replay_store_unavailable', String(cause).slice(0, 200)).error;
  }
  const fault = await prove();
  // A store that cannot give it back keeps it: the token is lost, not spent twice.
  if (fault) await store.release(cid).catch(() => undefined);
  return fault;
}
