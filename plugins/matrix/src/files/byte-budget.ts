interface BudgetLimits {
  /** Of all users together. */
  readonly total: number;
  readonly perUser: number;
}

/** Counts the bytes that are held for users, and refuses what would pass a limit. */
export class ByteBudget {
  private readonly byUser = new Map<string, number>();
  private held = 0;

  constructor(private readonly limits: BudgetLimits) {}

  /** The bytes of all users together. */
  get bytes(): number {
    return this.held;
  }

  /** Takes bytes for a user, if both limits allow it. */
  take(user: string, bytes: number): boolean {
    const held = (this.byUser.get(user) ?? 0) + bytes;
    if (held > this.limits.perUser || this.held + bytes > this.limits.total) return false;
    this.set(user, held);
    this.held += bytes;
    return true;
  }

  /** Gives back what was taken. */
  release(user: string, bytes: number): void {
    this.set(user, (this.byUser.get(user) ?? 0) - bytes);
    this.held -= bytes;
  }

  private set(user: string, bytes: number): void {
    if (bytes > 0) this.byUser.set(user, bytes);
    else this.byUser.delete(user);
  }
}
