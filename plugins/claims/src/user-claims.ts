import type { Claim } from './claim.js';
import type { ClaimStore } from './store/claim-store.js';
import type { UnpaidUsage } from './unpaid-usage.js';

/** The claims as the users they are about see them. */
export class UserClaims {
  constructor(
    private readonly store: ClaimStore,
    private readonly usage: UnpaidUsage,
  ) {}

  /** Usage is a claim from the moment it could not be paid, not only from the next run on. */
  async list(page: { readonly owner: string; readonly limit: number }): Promise<Claim[]> {
    await this.store.adopt(await this.usage.of(page.owner));
    return this.store.list(page);
  }
}
