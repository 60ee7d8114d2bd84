import { OracleError } from '@sibyl/protocol';

/** Seconds after which an answer has probably ended. */
const RETRY_SECONDS = 5;

/** Counts the requests of each user that wait for an answer or stream one, in all sessions. */
export class StreamPlaces {
  readonly #maxPerUser: number;
  readonly #perUser = new Map<string, number>();

  constructor(maxPerUser: number) {
    this.#maxPerUser = maxPerUser;
  }

  /** Takes a place at once and returns the function that releases it; throws if the user has no place left. */
  take(owner: string): () => void {
    const taken = this.#perUser.get(owner) ?? 0;
    if (taken >= this.#maxPerUser)
      throw new OracleError('too_many_streams', { retryAfterSeconds: RETRY_SECONDS });
    this.#perUser.set(owner, taken + 1);
    return () => this.#release(owner);
  }

  #release(owner: string): void {
    const left = (this.#perUser.get(owner) ?? 1) - 1;
    if (left > 0) this.#perUser.set(owner, left);
    else this.#perUser.delete(owner);
  }
}
