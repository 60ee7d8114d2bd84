import { OracleError } from '@sibyl/protocol';
import type { Logger } from 'pino';
import type { Meter } from '../agent/meter.js';
import type { ModelUse } from '../agent/model/model.js';
import { type ModelUsageStore, utcDay } from '../store/usage/model-usage-store.js';

/** How old the known total may be: other hosts spend from the same budget. */
const FRESH_MS = 2_000;
const RETRY_MS = 1_000;
const DAY_MS = 24 * 60 * 60 * 1000;

interface ModelBudgetParts {
  readonly usage: Pick<ModelUsageStore, 'add' | 'total'>;
  /** Infinite if not limited; then nothing is counted. */
  readonly tokensPerDay: number;
  readonly logger: Logger;
  /** The current time in milliseconds. */
  readonly clock?: (() => number) | undefined;
}

/**
 * What all users may spend on models per day in UTC, kept in the store, so that a restart does not
 * reset it and hosts on one database share it. Calls in progress when it runs out are finished.
 */
export class ModelBudget implements Meter {
  readonly #parts: ModelBudgetParts;
  readonly #clock: () => number;
  #day = '';
  /** The day's total in the store, as far as it is known. */
  #stored = 0;
  /** Spent, but not in the store yet. */
  #unstored = 0;
  #readAt = Number.NEGATIVE_INFINITY;
  #reading: Promise<void> | undefined;
  #storing: Promise<void> | undefined;
  #retry: NodeJS.Timeout | undefined;

  constructor(parts: ModelBudgetParts) {
    this.#parts = parts;
    this.#clock = parts.clock ?? Date.now;
  }

  /** Throws when the day's budget is used up, or when the store cannot tell. */
  async check(): Promise<void> {
    const { tokensPerDay } = this.#parts;
    if (tokensPerDay === Number.POSITIVE_INFINITY) return;
    this.#beginDay();
    // Again if a new day began meanwhile: what was read is the total of the day before.
    while (performance.now() - this.#readAt > FRESH_MS) await this.#read();
    if (this.#stored + this.#unstored < tokensPerDay) return;
    const retryAfterSeconds = Math.ceil((DAY_MS - (this.#clock() % DAY_MS)) / 1000);
    throw new OracleError('model_budget_exhausted', { retryAfterSeconds });
  }

  add({ input, output }: ModelUse): void {
    if (this.#parts.tokensPerDay === Number.POSITIVE_INFINITY || input + output === 0) return;
    this.#unstored += input + output;
    this.#startStoring();
  }

  /** Makes a last attempt to store what was spent. */
  async close(): Promise<void> {
    clearTimeout(this.#retry);
    this.#startStoring();
    await this.#storing;
    clearTimeout(this.#retry);
  }

  #beginDay(): void {
    const day = utcDay(this.#clock());
    if (day === this.#day) return;
    this.#day = day;
    this.#stored = 0;
    this.#readAt = Number.NEGATIVE_INFINITY;
  }

  /** Checks that come together share one read. */
  #read(): Promise<void> {
    this.#reading ??= this.#readTotal().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #readTotal(): Promise<void> {
    const day = this.#day;
    const total = await this.#parts.usage.total(day);
    this.#know(day, total);
    if (day === this.#day) this.#readAt = performance.now();
  }

  /** A day's total only grows: a smaller one was read before what is known already. */
  #know(day: string, total: number): void {
    if (day === this.#day) this.#stored = Math.max(this.#stored, total);
  }

  #startStoring(): void {
    this.#storing ??= this.#store().finally(() => {
      this.#storing = undefined;
    });
  }

  /** What is spent meanwhile goes along with the next write. */
  async #store(): Promise<void> {
    try {
      while (this.#unstored > 0) {
        this.#beginDay();
        const [day, tokens] = [this.#day, this.#unstored];
        const total = await this.#parts.usage.add(day, tokens);
        this.#unstored -= tokens;
        this.#know(day, total);
      }
    } catch (err) {
      const { logger } = this.#parts;
      logger.warn({ err, tokens: this.#unstored }, 'model usage not stored; trying again');
      this.#retry = setTimeout(() => this.#startStoring(), RETRY_MS);
      this.#retry.unref();
    }
  }
}
