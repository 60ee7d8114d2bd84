import type { CreditHold } from './credit-hold.js';

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
