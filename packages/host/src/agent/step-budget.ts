/** Model calls with tools that one turn may make, all its agents together. */
export class StepBudget {
  private taken = 0;

  constructor(readonly limit: number) {}

  get isSpent(): boolean {
    return this.taken >= this.limit;
  }

  take(): void {
    this.taken += 1;
  }
}
