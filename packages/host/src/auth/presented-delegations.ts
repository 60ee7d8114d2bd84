import { LruMap, textBytes } from '@sibyl/server-kit';
import type { UcanFault, VerifiedDelegation } from '@sibyl/ucan';
import type { Logger } from 'pino';
import { type DelegationStore, USE_PRECISION_MS } from '../store/delegation-store.js';
import type { DiskSpace } from '../store/disk-space.js';

/** About 9,000 delegations. */
const RECORDED_BYTES = 2 * 1024 * 1024;
const DAY_SECONDS = 86_400;

interface PresentedDelegationsOptions {
  readonly oracleDid: string;
  readonly delegations: DelegationStore;
  /** Undefined where the database is not on a disk of this host. */
  readonly disk: DiskSpace | undefined;
  readonly logger: Logger;
  /** The most days until the expiry of a delegation that may log in; any number if undefined. */
  readonly loginMaxDays: number | undefined;
}

/** Delegations that requests carry: which of them may log in, and a record of those that were used. */
export class PresentedDelegations {
  /** When the use of a CID was last recorded by this process, on the monotonic clock. */
  private readonly recorded = new LruMap<string, number>({
    maxBytes: RECORDED_BYTES,
    sizeOf: (_, cid) => textBytes(cid) + 8,
  });

  constructor(private readonly options: PresentedDelegationsOptions) {}

  /** Why a valid delegation may not serve as a login, if so. */
  checkLogin({ did, cid, expiration }: VerifiedDelegation): UcanFault | undefined {
    const { oracleDid, loginMaxDays } = this.options;
    if (did === oracleDid)
      return {
        code: 'wrong_issuer',
        detail: 'the oracle does not log in to itself',
        cid,
        issuer: did,
      };
    if (loginMaxDays === undefined) return undefined;
    if (expiration <= Date.now() / 1000 + loginMaxDays * DAY_SECONDS) return undefined;
    const detail = `expires more than DELEGATION_LOGIN_MAX_DAYS=${loginMaxDays} days from now`;
    return { code: 'expiry_too_far', detail, cid, issuer: did };
  }

  /**
   * Lets the issuer list and revoke a delegation once it was used; the store is written once an hour at
   * most, and not while the disk is low: keys cost nothing, so anyone could fill it by reading.
   */
  async record({
    did,
    cid,
    audience,
    capabilities,
    expiration,
  }: VerifiedDelegation): Promise<void> {
    const now = performance.now();
    const last = this.recorded.get(cid);
    if (last !== undefined && now - last < USE_PRECISION_MS) return;
    const expiresAt = Number.isFinite(expiration) ? expiration : null;
    try {
      const { delegations, disk } = this.options;
      if (await disk?.isLow()) return;
      const use = { owner: did, cid, audience, capabilities, expiresAt };
      const dropped = await delegations.recordUse(use);
      this.recorded.set(cid, now);
      this.forget(dropped);
    } catch (err) {
      // A store that cannot be written must not keep users from reading; the next use tries again.
      this.options.logger.warn({ err, did, cid }, 'cannot record the use of a delegation');
    }
  }

  /** Records the next use of delegations that the store has dropped, so that they are listed again. */
  forget(cids: readonly string[]): void {
    for (const cid of cids) this.recorded.delete(cid);
  }
}
