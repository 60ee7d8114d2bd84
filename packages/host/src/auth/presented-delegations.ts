import { LruMap, textBytes } from '@sibyl/server-kit';
import type { UcanError, VerifiedDelegation } from '@sibyl/ucan';
import type { Logger } from 'pino';
import { type DelegationStore, USE_PRECISION_MS } from '../store/delegation-store.js';
import type { DiskSpace } from '../store/disk-space.js';

/** About 9,000 delegations. */
const RECORDED_BYTES = 2 * 1024 * 1024;
const DAY_SECONDS = 86_400;

interface PresentedDelegationsOptions {
  readonly oracleDid: string;
  readonly delegations: DelegationStore;
  /** Undefined if the database is not on a disk of this host. */
  readonly disk: DiskSpace | undefined;
  readonly logger: Logger;
  /** Maximum days until the expiry of a delegation that may log in; undefined for no limit. */
  readonly loginMaxDays: number | undefined;
}

/** Delegations in requests: decides which of them may log in, and records their use. */
export class PresentedDelegations {
  /** When this process last recorded the use of a CID, on the monotonic clock. */
  private readonly recorded = new LruMap<string, number>({
    maxBytes: RECORDED_BYTES,
    measure: (_, cid) => textBytes(cid) + 8,
  });

  constructor(private readonly options: PresentedDelegationsOptions) {}

  /** Returns why a valid delegation may not log in; undefined if it may. */
  checkLogin({ did, cid, expiration }: VerifiedDelegation): UcanError | undefined {
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
   * Records a delegation so that its issuer can list and revoke it. Writes to the store at most once an hour, and
   * not while disk space is low: keys cost nothing, so any client could fill the disk with read requests.
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
      // Users can still read while the store accepts no writes; the next use tries again.
      this.options.logger.warn({ err, did, cid }, 'cannot record the use of a delegation');
    }
  }

  /** Makes sure that the next use of delegations that the store has dropped is recorded again. */
  forget(cids: readonly string[]): void {
    for (const cid of cids) this.recorded.delete(cid);
  }
}
