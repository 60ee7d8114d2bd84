import type { ModelUse } from '@sibyl/plugin-kit';
import type { Meter } from '../../agent/meter.js';
import type { TokenUsage } from '../../store/runs/run.js';

interface TurnAccountParts {
  readonly check: (used: readonly ModelUse[]) => Promise<void>;
  readonly add: (use: ModelUse) => void;
  readonly settle: (used: readonly ModelUse[]) => Promise<void>;
}

/** What one turn spends on models, from being let in until all that belongs to it is over. */
export class TurnAccount implements Meter {
  readonly #parts: TurnAccountParts;
  readonly #uses = new Map<string, ModelUse>();
  #settled: Promise<void> | undefined;

  constructor(parts: TurnAccountParts) {
    this.#parts = parts;
  }

  /** By model. */
  get used(): readonly ModelUse[] {
    return [...this.#uses.values()];
  }

  get total(): TokenUsage {
    return this.used.reduce<TokenUsage>(sum, { input: 0, output: 0, cached: 0 });
  }

  /** What comes after the account is closed would be paid by nobody. */
  async check(): Promise<void> {
    if (this.#settled !== undefined) throw new Error('The turn is over');
    await this.#parts.check(this.used);
  }

  add(use: ModelUse): void {
    if (use.input + use.output === 0) return;
    this.#parts.add(use);
    const known = this.#uses.get(use.model);
    this.#uses.set(use.model, known ? { model: use.model, ...sum(known, use) } : use);
  }

  /** Closes the account; asked again, it is the same once. */
  settle(): Promise<void> {
    this.#settled ??= this.#parts.settle(this.used);
    return this.#settled;
  }
}

function sum(a: TokenUsage, b: TokenUsage): TokenUsage {
  return { input: a.input + b.input, output: a.output + b.output, cached: a.cached + b.cached };
}
