import type { GateRequest, ModelUse, TurnHold } from '@sibyl/plugin-kit';
import type { ReservationKey, Reservations } from '../ledger/reservations.js';
import { costOf, type Prices, sumByModel } from '../prices.js';
import { orRefuse } from './or-refuse.js';

/** Tells the agents of a turn apart, those of one name too; each makes one call at a time. */
export type CallKey = symbol;

/** A call of a model that is about to be made, or under way. */
interface CallAhead {
  readonly model: string;
  /** Tokens it will send, estimated. */
  readonly input: number;
}

interface CreditHoldParts {
  readonly request: GateRequest;
  readonly key: ReservationKey;
  /** What was set aside when the turn was let in. */
  readonly reserved: number;
  readonly reservations: Reservations;
  readonly prices: Prices;
  /** Tokens of answer that must be paid for before a model is asked. */
  readonly answerTokens: number;
  readonly onSettled: (hold: CreditHold) => void;
}

/** What one turn has set aside: grows before each model call, and is settled at the turn's end. */
export class CreditHold implements TurnHold {
  readonly #parts: CreditHoldParts;
  /** The call of each running agent. */
  readonly #ahead = new Map<CallKey, CallAhead>();
  #used: readonly ModelUse[] = [];
  #reserved: number;
  #incurred = 0;
  #final: readonly ModelUse[] | undefined;

  constructor(parts: CreditHoldParts) {
    this.#parts = parts;
    this.#reserved = parts.reserved;
  }

  get request(): GateRequest {
    return this.#parts.request;
  }

  async check(used: readonly ModelUse[]): Promise<void> {
    this.#used = used;
    await this.#makeRoom();
  }

  /** Makes sure that a call can be paid for before it is made. */
  async prepare(key: CallKey, call: CallAhead): Promise<void> {
    this.#ahead.set(key, call);
    await orRefuse(this.#makeRoom());
  }

  /** A call has been made: from now on it counts by what it used. */
  conclude(key: CallKey): void {
    this.#ahead.delete(key);
  }

  async settle(used: readonly ModelUse[]): Promise<void> {
    const { reservations, key, prices, onSettled } = this.#parts;
    this.#final = used;
    const usage = JSON.stringify(sumByModel(used));
    await reservations.settle(key, { cost: costOf(used, prices), usage });
    onSettled(this);
  }

  /** For a turn that is over while nobody could settle it. */
  async settleIfOver(): Promise<void> {
    if (this.#final) await this.settle(this.#final);
  }

  async #makeRoom(): Promise<void> {
    const { reservations, key, answerTokens } = this.#parts;
    const incurred = this.#costWith(0);
    const amount = Math.max(this.#reserved, this.#costWith(answerTokens));
    if (amount === this.#reserved && incurred === this.#incurred) return;
    await reservations.extend(key, { amount, incurred });
    this.#reserved = Math.max(this.#reserved, amount);
    this.#incurred = incurred;
  }

  /** What was used, and the calls ahead with an answer of so many tokens each. */
  #costWith(output: number): number {
    const ahead = [...this.#ahead.values()].map(({ model, input }) => ({
      model,
      input,
      cached: 0,
      output,
    }));
    return costOf([...this.#used, ...ahead], this.#parts.prices);
  }
}
