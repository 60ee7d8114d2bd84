/** Usage that a balance could not pay; its id stays the same until it is paid. */
export interface Unpaid {
  readonly id: string;
  readonly owner: string;
  readonly amount: number;
  readonly sessionId: string;
  readonly requestId: string;
  readonly createdAt: number;
}

interface UnpaidKey {
  readonly owner: string;
  readonly id: string;
}

/** What the credits plugin shares: the usage that is to be claimed. */
export interface UnpaidUsage {
  /** What nobody collects yet, a page at a time in the order of ids. */
  list(page: { readonly after?: string }): Promise<readonly Unpaid[]>;
  of(owner: string): Promise<readonly Unpaid[]>;
  /** Keeps the balance from paying it from now on; undefined once it is paid. */
  take(key: UnpaidKey): Promise<Unpaid | undefined>;
  settle(key: UnpaidKey): Promise<void>;
  /** Lets the balance pay it again. */
  giveBack(key: UnpaidKey): Promise<void>;
}

const METHODS = ['list', 'of', 'take', 'settle', 'giveBack'] as const;

/** Finds it in what other plugins share. */
export function unpaidUsageOf(shared: Readonly<Record<string, unknown>>): UnpaidUsage {
  const { credits } = shared as { credits?: Partial<Record<string, unknown>> };
  const missing = METHODS.filter((method) => typeof credits?.[method] !== 'function');
  if (missing.length === 0) return credits as unknown as UnpaidUsage;
  throw new Error(
    `The plugin credits does not share ${missing.join(', ')}; use the version that came with this one`,
  );
}
