import { BoundedMap } from '../bounded-map.js';
import type { Clock } from '../clock.js';
import type { UcanFault } from '../fault.js';
import type { Result } from '../result.js';
import type { Verdict } from './verdict.js';

interface Entry<V> {
  readonly verdict: V;
  readonly until: number;
}

export interface VerdictCacheOptions {
  readonly clock: Clock;
  readonly capacity: number;
}

/** Keys of other methods than did:key can be withdrawn, so a verdict on them is short-lived. */
const LOOKED_UP_SECONDS = 300;

/** Remembers successes and lets equal tokens that arrive together share one verification. */
export class VerdictCache<V extends Verdict> {
  readonly #options: VerdictCacheOptions;
  readonly #entries: BoundedMap<string, Entry<V>>;
  readonly #flights = new Map<string, Promise<Result<V, UcanFault>>>();
  #generation = 0;

  constructor(options: VerdictCacheOptions) {
    this.#options = options;
    this.#entries = new BoundedMap(options.capacity);
  }

  get(key: string): V | undefined {
    const entry = this.#entries.get(key);
    if (!entry) return undefined;
    if (entry.until > this.#options.clock()) return entry.verdict;
    this.#entries.delete(key);
    return undefined;
  }

  /** Joins the verification of that name which is under way, or starts it and keeps its success. */
  async share(
    flight: string,
    key: string,
    verify: () => Promise<Result<V, UcanFault>>,
  ): Promise<Result<V, UcanFault>> {
    const running = this.#flights.get(flight);
    if (running !== undefined) return running;
    const started = this.#verifyAndKeep(key, verify);
    this.#flights.set(flight, started);
    try {
      return await started;
    } finally {
      this.#flights.delete(flight);
    }
  }

  forget(matches: (verdict: Verdict) => boolean): number {
    // A verification that began before must not bring back what is being forgotten.
    this.#generation += 1;
    return this.#entries.deleteWhere(({ verdict }) => matches(verdict));
  }

  async #verifyAndKeep(
    key: string,
    verify: () => Promise<Result<V, UcanFault>>,
  ): Promise<Result<V, UcanFault>> {
    const generation = this.#generation;
    const result = await verify();
    if (result.ok && generation === this.#generation) {
      this.#entries.set(key, { verdict: result.ok, until: this.#keepUntil(result.ok) });
    }
    return result;
  }

  #keepUntil({ issuers, expiration }: V): number {
    const isOffline = issuers.every((did) => did.startsWith('did:key:'));
    return isOffline ? expiration : Math.min(expiration, this.#options.clock() + LOOKED_UP_SECONDS);
  }
}
