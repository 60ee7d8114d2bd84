/** Credit beyond a balance, for usage that is claimed later. */
export interface CreditLine {
  readonly amount: number;
  /** Why it is not known, for the user. */
  readonly fault?: string;
}

/** What somebody else grants users beyond their balances. */
export interface CreditLines {
  of(owner: string): Promise<CreditLine>;
  /** What was known of a user no longer holds. */
  forget(owner: string): void;
}

/** Where balances are all there is. */
export const noLines: CreditLines = { of: async () => ({ amount: 0 }), forget: () => {} };
