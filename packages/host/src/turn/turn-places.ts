import { OracleError } from '@sibyl/protocol';

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
  readonly #limits: TurnLimits;
  readonly #perUser = new Map<string, number>();
  #total = 0;

  constructor(limits: TurnLimits) {
    this.#limits = limits;
  }

  /** Takes a place at once, or throws why there is none. */
  take(owner: string): TurnPlace {
    const { maxPerUser, max } = this.#limits;
    const taken = this.#perUser.get(owner) ?? 0;
    if (taken >= maxPerUser) throw tooManyTurns();
    if (this.#total >= max)
      throw new OracleError('host_busy', { retryAfterSeconds: RETRY_SECONDS });
    this.#perUser.set(owner, taken + 1);
    this.#total += 1;
    let isTaken = true;
    return {
      release: () => {
        if (isTaken) this.#release(owner);
        isTaken = false;
      },
    };
  }

  #release(owner: string): void {
    this.#total -= 1;
    const left = (this.#perUser.get(owner) ?? 1) - 1;
    if (left > 0) this.#perUser.set(owner, left);
    else this.#perUser.delete(owner);
  }
}

/** The refusal of a user who has as many turns as one may have. */
export const tooManyTurns = (): OracleError =>
  new OracleError('too_many_turns', { retryAfterSeconds: RETRY_SECONDS });

/** The refusal of a host that takes no more turns. */
export const hostStopping = (): OracleError =>
  new OracleError('host_stopping', { retryAfterSeconds: RETRY_SECONDS });
