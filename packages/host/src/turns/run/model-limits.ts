import { OracleError } from '@sibyl/protocol';
import type { Logger } from 'pino';
import type { Meter } from '../../agent/agent.js';
import type { Model, ModelPart, ModelUse } from '../../models/model.js';
import type { Metrics } from '../../observability/metrics.js';
import { type ModelUsageStore, toUtcDay } from '../../store/usage-store.js';

/** Maximum age of the known total: other hosts spend from the same budget. */
const FRESH_MS = 2_000;
const RETRY_MS = 1_000;
const DAY_MS = 24 * 60 * 60 * 1000;

interface ModelBudgetDeps {
  readonly usage: Pick<ModelUsageStore, 'add' | 'total'>;
  /** Infinity means unlimited; then nothing is stored. */
  readonly tokensPerDay: number;
  readonly logger: Logger;
  readonly metrics?: Pick<Metrics, 'count'> | undefined;
  /** The current time in milliseconds. */
  readonly clock?: (() => number) | undefined;
}

/**
 * The tokens that all users may spend per UTC day. The total is in the store, so it survives restarts and hosts on
 * one database share it. Calls in progress finish when it runs out.
 */
export class ModelBudget implements Meter {
  private readonly clock: () => number;
  private day = '';
  /** The last known total of the day in the store. */
  private stored = 0;
  /** Spent but not stored yet. */
  private unstored = 0;
  private readAt = Number.NEGATIVE_INFINITY;
  private reading: Promise<void> | undefined;
  private storing: Promise<void> | undefined;
  private retry: NodeJS.Timeout | undefined;

  constructor(private readonly deps: ModelBudgetDeps) {
    this.clock = deps.clock ?? Date.now;
  }

  /** Throws if the day's budget is exhausted or cannot be read. */
  async check(): Promise<void> {
    const { tokensPerDay } = this.deps;
    if (tokensPerDay === Number.POSITIVE_INFINITY) return;
    this.beginDay();
    // Repeats if a new day began: the total that was read belongs to the day before.
    while (performance.now() - this.readAt > FRESH_MS) await this.read();
    if (this.stored + this.unstored < tokensPerDay) return;
    const retryAfterSeconds = Math.ceil((DAY_MS - (this.clock() % DAY_MS)) / 1000);
    throw new OracleError('model_budget_exhausted', { retryAfterSeconds });
  }

  add({ model, input, output, cached, cost }: ModelUse): void {
    const { metrics } = this.deps;
    for (const [kind, tokens] of Object.entries({ input, output, cached }))
      if (tokens) metrics?.count('sibyl_model_tokens_total', { model, kind }, tokens);
    if (cost) metrics?.count('sibyl_model_cost_total', { model }, cost);
    if (this.deps.tokensPerDay === Number.POSITIVE_INFINITY || input + output === 0) return;
    this.unstored += input + output;
    this.startStoring();
  }

  /** Makes a last attempt to store the usage. */
  async close(): Promise<void> {
    clearTimeout(this.retry);
    this.startStoring();
    await this.storing;
    clearTimeout(this.retry);
  }

  private beginDay(): void {
    const day = toUtcDay(this.clock());
    if (day === this.day) return;
    this.day = day;
    this.stored = 0;
    this.readAt = Number.NEGATIVE_INFINITY;
  }

  /** Concurrent checks share one read. */
  private read(): Promise<void> {
    this.reading ??= this.readTotal().finally(() => {
      this.reading = undefined;
    });
    return this.reading;
  }

  private async readTotal(): Promise<void> {
    const day = this.day;
    const total = await this.deps.usage.total(day);
    this.raiseStored(day, total);
    if (day === this.day) this.readAt = performance.now();
  }

  /** A day's total only grows, so a smaller one is outdated. */
  private raiseStored(day: string, total: number): void {
    if (day === this.day) this.stored = Math.max(this.stored, total);
  }

  private startStoring(): void {
    this.storing ??= this.store().finally(() => {
      this.storing = undefined;
    });
  }

  /** Usage that arrives during a write is part of the next one. */
  private async store(): Promise<void> {
    try {
      while (this.unstored > 0) {
        this.beginDay();
        const [day, tokens] = [this.day, this.unstored];
        const total = await this.deps.usage.add(day, tokens);
        this.unstored -= tokens;
        this.raiseStored(day, total);
      }
    } catch (err) {
      const { logger } = this.deps;
      logger.warn({ err, tokens: this.unstored }, 'model usage not stored; trying again');
      this.retry = setTimeout(() => this.startStoring(), RETRY_MS);
      this.retry.unref();
    }
  }
}

/** Overhead of a tool call: even a short one becomes frames and is stored. */
const CALL_CHARACTERS = 500;

interface OutputLimitOptions {
  readonly maxCharacters: number;
  /** Called once, when the limit is reached. */
  readonly onReached: (error: OracleError) => void;
}

/** Limits the output of all models of one turn together, including sub-agents and summaries. */
export class OutputLimit {
  private characters = 0;
  private reached: OracleError | undefined;

  constructor(private readonly options: OutputLimitOptions) {}

  /** Returns the model with its output counted. */
  wrap(model: Model): Model {
    return {
      ...model,
      stream: (call) => ({
        [Symbol.asyncIterator]: () =>
          new CountingIterator(model.stream(call)[Symbol.asyncIterator](), this),
      }),
    };
  }

  /** Throws if the limit was reached: no further call may start. */
  assertNotReached(): void {
    if (this.reached) throw this.reached;
  }

  /** Throws when the limit is reached. */
  count(part: ModelPart): void {
    this.characters += countCharacters(part);
    const { maxCharacters, onReached } = this.options;
    if (this.characters <= maxCharacters) return;
    if (this.reached === undefined) {
      const message = `The turn was stopped after ${maxCharacters} characters, the most that one turn may have on this host.`;
      this.reached = new OracleError('turn_too_long', { message });
      // Deferred until the stream is closed: a source may not expect its reader to abort it.
      setImmediate(onReached, this.reached);
    }
    throw this.reached;
  }
}

function countCharacters(part: ModelPart): number {
  switch (part.type) {
    case 'text':
    case 'reasoning':
      return part.text.length;
    case 'tool-call':
      return CALL_CHARACTERS + part.call.name.length + part.call.input.length;
    case 'warning':
    case 'finish':
      return 0;
    default:
      return part satisfies never;
  }
}

/** Not a generator: this runs for every token. */
class CountingIterator implements AsyncIterator<ModelPart> {
  constructor(
    private readonly source: AsyncIterator<ModelPart>,
    private readonly limit: OutputLimit,
  ) {}

  async next(): Promise<IteratorResult<ModelPart>> {
    this.limit.assertNotReached();
    const result = await this.source.next();
    try {
      if (!result.done) this.limit.count(result.value);
      return result;
    } catch (error) {
      // Not awaited: a source that hangs in its last step would block the turn.
      this.source.return?.().catch(() => undefined);
      throw error;
    }
  }

  async return(): Promise<IteratorResult<ModelPart>> {
    await this.source.return?.();
    return { done: true, value: undefined };
  }
}
