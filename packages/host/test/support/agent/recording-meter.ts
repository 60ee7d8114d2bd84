import type { Meter } from '../../../src/agent/agent.js';
import type { ModelUse } from '../../../src/models/model.js';

/** A meter that records its calls, and may throw. */
export class RecordingMeter implements Meter {
  readonly uses: ModelUse[] = [];
  checks = 0;

  constructor(private readonly refuse: (uses: readonly ModelUse[]) => void = () => undefined) {}

  async check(): Promise<void> {
    this.checks += 1;
    this.refuse(this.uses);
  }

  add(use: ModelUse): void {
    this.uses.push(use);
  }
}
