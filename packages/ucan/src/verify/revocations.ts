import type { Clock } from '../clock.js';
import { refuse, type UcanFault } from '../fault.js';

/** Tells whether a UCAN, known by its CID, was revoked. */
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
  readonly capacity?: number;
}): RevocationSet {
  const { clock, capacity = 100_000 } = options;
  const expiryOf = new Map<string, number>();
  const sweep = () => {
    for (const [cid, expiresAt] of expiryOf) if (expiresAt <= clock()) expiryOf.delete(cid);
  };
  return {
    isRevoked: (cid) => (expiryOf.get(cid) ?? 0) > clock(),
    add(cid, expiresAt) {
      if (expiryOf.size >= capacity) sweep();
      if (expiryOf.size >= capacity && !expiryOf.has(cid)) return false;
      expiryOf.set(cid, Math.max(expiresAt, expiryOf.get(cid) ?? 0));
      return true;
    },
    get size() {
      return expiryOf.size;
    },
  };
}

/** Refuses a chain of which any link was revoked, and every chain when that cannot be known. */
export async function checkRevocations(
  cids: Iterable<string>,
  revocations: Revocations,
): Promise<UcanFault | undefined> {
  try {
    for (const cid of cids) {
      if (await revocations.isRevoked(cid)) return refuse('revoked', cid).error;
    }
    return undefined;
  } catch (cause) {
    return refuse('revocations_unavailable', String(cause).slice(0, 200)).error;
  }
}
