import type { GateRequest, MessageGate, TurnHold } from '@sibyl/plugin-kit';
import type { Reservations } from '../ledger/reservations.js';
import { costOf, type Prices } from '../prices.js';
import { CreditHold } from './credit-hold.js';
import type { HoldsAtWork } from './holds-at-work.js';

const CHARACTERS_PER_TOKEN = 4;

export interface CreditGateParts {
  readonly reservations: Reservations;
  readonly holds: HoldsAtWork;
  readonly prices: Prices;
  /** Set aside for every turn, beside the price of its message. */
  readonly turnMinimum: number;
  readonly answerTokens: number;
}

/** Lets a turn in once credit for it is set aside. */
export class CreditGate implements MessageGate {
  readonly #parts: CreditGateParts;

  constructor(parts: CreditGateParts) {
    this.#parts = parts;
  }

  async admit(request: GateRequest): Promise<TurnHold> {
    const { holds, ...parts } = this.#parts;
    const { owner, sessionId, requestId } = request;
    const reserved = this.#estimate(request);
    const wanted = { owner, sessionId, requestId, amount: reserved };
    const key = await parts.reservations.reserve(wanted);
    const onSettled = (settled: CreditHold) => holds.remove(settled);
    const hold = new CreditHold({ ...parts, request, key, reserved, onSettled });
    holds.add(hold);
    return hold;
  }

  #estimate({ model, length }: GateRequest): number {
    const input = Math.ceil(length / CHARACTERS_PER_TOKEN);
    const { turnMinimum, prices } = this.#parts;
    return turnMinimum + costOf([{ model, input, cached: 0, output: 0 }], prices);
  }
}
