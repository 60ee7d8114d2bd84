import { OracleError } from '@sibyl/protocol';
import type { Logger } from 'pino';
import type { Meter } from '../agent/agent.js';
import type { Model, ModelPart, ModelUse } from '../models/model.js';
import { type ModelUsageStore, toUtcDay } from '../store/model-usage-store.js';

/** Seconds after which a turn has probably ended. */
const RETRY_SECONDS = 5;

interface TurnLimits {
  readonly maxPerUser: number;
  /** Of all users together. */
  readonly max: number;
}

/** The right to one turn on this host, until it is released. */
export interface TurnPlace {
  /** Gives the place to another turn; has an effect once. */
  release(): void;
}

/** Counts the turns that run or wait on this host. Model calls cost money and identities do not. */
export class TurnPlaces {
  private readonly limits: TurnLimits;
  private readonly perUser = new Map<string, number>();
  private total = 0;

  constructor(limits: TurnLimits) {
    this.limits = limits;
  }

  /** Takes a place at once, or throws why there is none. */
  take(owner: string): TurnPlace {
    const { maxPerUser, max } = this.limits;
    const taken = this.perUser.get(owner) ?? 0;
    if (taken >= maxPerUser) throw tooManyTurns();
    if (this.total >= max) throw new OracleError('host_busy', { retryAfterSeconds: RETRY_SECONDS });
    this.perUser.set(owner, taken + 1);
    this.total += 1;
    let isTaken = true;
    return {
      release: () => {
        if (isTaken) this.release(owner);
        isTaken = false;
      },
    };
  }

  private release(owner: string): void {
    this.total -= 1;
    const left = (this.perUser.get(owner) ?? 1) - 1;
    if (left > 0) this.perUser.set(owner, left);
    else this.perUser.delete(owner);
  }
}

/** The refusal of a user who has as many turns as one may have. */
export const tooManyTurns = (): OracleError =>
  new OracleError('too_many_turns', { retryAfterSeconds: RETRY_SECONDS });

/** The refusal of a host that takes no more turns. */
export const hostStopping = (): OracleError =>
  new OracleError('host_stopping', { retryAfterSeconds: RETRY_SECONDS });

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
  private readonly parts: ModelBudgetParts;
  private readonly clock: () => number;
  private day = '';
  /** The day's total in the store, as far as it is known. */
  private stored = 0;
  /** Spent, but not in the store yet. */
  private unstored = 0;
  private readAt = Number.NEGATIVE_INFINITY;
  private reading: Promise<void> | undefined;
  private storing: Promise<void> | undefined;
  private retry: NodeJS.Timeout | undefined;

  constructor(parts: ModelBudgetParts) {
    this.parts = parts;
    this.clock = parts.clock ?? Date.now;
  }

  /** Throws when the day's budget is used up, or when the store cannot tell. */
  async check(): Promise<void> {
    const { tokensPerDay } = this.parts;
    if (tokensPerDay === Number.POSITIVE_INFINITY) return;
    this.beginDay();
    // Again if a new day began meanwhile: what was read is the total of the day before.
    while (performance.now() - this.readAt > FRESH_MS) await this.read();
    if (this.stored + this.unstored < tokensPerDay) return;
    const retryAfterSeconds = Math.ceil((DAY_MS - (this.clock() % DAY_MS)) / 1000);
    throw new OracleError('model_budget_exhausted', { retryAfterSeconds });
  }

  add({ input, output }: ModelUse): void {
    if (this.parts.tokensPerDay === Number.POSITIVE_INFINITY || input + output === 0) return;
    this.unstored += input + output;
    this.startStoring();
  }

  /** Makes a last attempt to store what was spent. */
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

  /** Checks that come together share one read. */
  private read(): Promise<void> {
    this.reading ??= this.readTotal().finally(() => {
      this.reading = undefined;
    });
    return this.reading;
  }

  private async readTotal(): Promise<void> {
    const day = this.day;
    const total = await this.parts.usage.total(day);
    this.know(day, total);
    if (day === this.day) this.readAt = performance.now();
  }

  /** A day's total only grows: a smaller one was read before what is known already. */
  private know(day: string, total: number): void {
    if (day === this.day) this.stored = Math.max(this.stored, total);
  }

  private startStoring(): void {
    this.storing ??= this.store().finally(() => {
      this.storing = undefined;
    });
  }

  /** What is spent meanwhile goes along with the next write. */
  private async store(): Promise<void> {
    try {
      while (this.unstored > 0) {
        this.beginDay();
        const [day, tokens] = [this.day, this.unstored];
        const total = await this.parts.usage.add(day, tokens);
        this.unstored -= tokens;
        this.know(day, total);
      }
    } catch (err) {
      const { logger } = this.parts;
      logger.warn({ err, tokens: this.unstored }, 'model usage not stored; trying again');
      this.retry = setTimeout(() => this.startStoring(), RETRY_MS);
      this.retry.unref();
    }
  }
}

/** What a tool call counts beside its text: it becomes frames and is kept, however short it is. */
const CALL_CHARACTERS = 500;

interface OutputLimitParts {
  readonly maxCharacters: number;
  /** Called once, when the limit is reached. */
  readonly onReached: (error: OracleError) => void;
}

/** Limits what all models of one turn write together, those of sub-agents and summaries included. */
export class OutputLimit {
  private readonly parts: OutputLimitParts;
  private characters = 0;
  private reached: OracleError | undefined;

  constructor(parts: OutputLimitParts) {
    this.parts = parts;
  }

  /** The same model, whose answers count. */
  watch(model: Model): Model {
    return {
      ...model,
      stream: (call) => ({
        [Symbol.asyncIterator]: () =>
          new CountedParts(model.stream(call)[Symbol.asyncIterator](), this),
      }),
    };
  }

  /** Throws if it was too much already: no call is worth making any more. */
  assertLeft(): void {
    if (this.reached) throw this.reached;
  }

  /** Throws once it is too much. */
  count(part: ModelPart): void {
    this.characters += charactersIn(part);
    const { maxCharacters, onReached } = this.parts;
    if (this.characters <= maxCharacters) return;
    if (this.reached === undefined) {
      const message = `The turn was stopped after ${maxCharacters} characters, the most that one turn may have on this host.`;
      this.reached = new OracleError('turn_too_long', { message });
      // Only after the stream that wrote too much is closed: it may not expect to be aborted by its reader.
      setImmediate(onReached, this.reached);
    }
    throw this.reached;
  }
}

function charactersIn(part: ModelPart): number {
  switch (part.type) {
    case 'text':
    case 'reasoning':
      return part.text.length;
    case 'tool-call':
      return CALL_CHARACTERS + part.call.name.length + part.call.input.length;
    case 'finish':
      return 0;
    default:
      return part satisfies never;
  }
}

/** By hand, not by a generator: this sits between every token and its reader. */
class CountedParts implements AsyncIterator<ModelPart> {
  constructor(
    private readonly source: AsyncIterator<ModelPart>,
    private readonly limit: OutputLimit,
  ) {}

  async next(): Promise<IteratorResult<ModelPart>> {
    this.limit.assertLeft();
    const result = await this.source.next();
    try {
      if (!result.done) this.limit.count(result.value);
      return result;
    } catch (error) {
      // Not waited for: a source stuck in its last step would hold the turn.
      this.source.return?.().catch(() => undefined);
      throw error;
    }
  }

  async return(): Promise<IteratorResult<ModelPart>> {
    await this.source.return?.();
    return { done: true, value: undefined };
  }
}
