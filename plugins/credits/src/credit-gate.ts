import {
  type GateRequest,
  type MessageGate,
  type ModelUse,
  OracleError,
  type TurnHold,
} from '@sibyl/plugin-kit';
import { costOf, type Prices, sumByModel } from './prices.js';
import type { ReservationKey, Reservations } from './reservations.js';

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

interface TurnKey {
  readonly owner: string;
  readonly sessionId: string;
  readonly requestId: string;
}

/** The holds of this process, to be found by the turn they belong to. */
export class HoldsAtWork {
  readonly #holds = new Map<string, CreditHold[]>();

  add(hold: CreditHold): void {
    const name = nameOf(hold.request);
    this.#holds.set(name, [...(this.#holds.get(name) ?? []), hold]);
  }

  /** Turns of one session take turns, so of several with one request id the first is at work. */
  find(turn: TurnKey): CreditHold | undefined {
    return this.#holds.get(nameOf(turn))?.[0];
  }

  /** Tries again to settle what is over, where that failed before. */
  async settleOver(): Promise<void> {
    const holds = [...this.#holds.values()].flat();
    await Promise.all(holds.map((hold) => hold.settleIfOver()));
  }

  remove(hold: CreditHold): void {
    const name = nameOf(hold.request);
    const left = this.#holds.get(name)?.filter((other) => other !== hold) ?? [];
    if (left.length > 0) this.#holds.set(name, left);
    else this.#holds.delete(name);
  }
}

function nameOf({ owner, sessionId, requestId }: TurnKey): string {
  return JSON.stringify([owner, sessionId, requestId]);
}

/** Shorter than the host waits for a plugin before it goes on without its middleware. */
const PATIENCE_MS = 12_000;

/** Refuses the turn where the ledger fails or hangs: a host goes on without a middleware that does, and nobody would pay. */
export async function orRefuse<T>(work: Promise<T>): Promise<T> {
  const { promise: tooLate, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(reject, PATIENCE_MS, new Error('The ledger did not answer in time'));
  try {
    return await Promise.race([work, tooLate]);
  } catch (cause) {
    if (cause instanceof OracleError) throw cause;
    throw new OracleError('store_unavailable', { cause, retryAfterSeconds: 5 });
  } finally {
    clearTimeout(timer);
  }
}
