import type { Result } from '@sibyl/protocol';
import { LruMap, textBytes } from '@sibyl/server-kit';
import type { Clock } from '../clock.js';
import { refuse, type UcanFault } from '../fault.js';
import { measureVerdict, type Verdict } from './verdict.js';

interface Entry<V> {
  readonly verdict: V;
  readonly until: number;
}

export interface VerdictCacheOptions {
  readonly clock: Clock;
  readonly maxBytes: number;
}

/** Keys of other methods than did:key can be withdrawn, so a verdict on them is short-lived. */
const LOOKED_UP_SECONDS = 300;

/** Verifications in progress at most: each holds a token in memory. */
const MAX_FLIGHTS = 2000;

/** Remembers successes and lets equal tokens that arrive together share one verification. */
export class VerdictCache<V extends Verdict> {
  readonly #options: VerdictCacheOptions;
  readonly #entries: LruMap<string, Entry<V>>;
  readonly #flights = new Map<string, Promise<Result<V, UcanFault>>>();
  #generation = 0;

  constructor(options: VerdictCacheOptions) {
    this.#options = options;
    this.#entries = new LruMap({
      maxBytes: options.maxBytes,
      sizeOf: ({ verdict }, key) => measureVerdict(verdict) + textBytes(key),
    });
  }

  get(key: string): V | undefined {
    const entry = this.#entries.get(key);
    if (!entry) return undefined;
    if (entry.until > this.#options.clock()) return entry.verdict;
    this.#entries.delete(key);
    return undefined;
  }

  /** Joins the verification of the same token that is in progress, or starts one and keeps its success. */
  async share(
    key: string,
    verify: () => Promise<Result<V, UcanFault>>,
  ): Promise<Result<V, UcanFault>> {
    const running = this.#flights.get(key);
    if (running !== undefined) {
      const result = await running;
      // That the other caller could not pay says nothing about this one.
      return result.error?.code === 'cost_refused' ? this.#verifyAndKeep(key, verify) : result;
    }
    if (this.#flights.size >= MAX_FLIGHTS) {
      return refuse('verifier_busy', `${MAX_FLIGHTS} verifications are in progress`);
    }
    const started = this.#verifyAndKeep(key, verify);
    this.#flights.set(key, started);
    try {
      return await started;
    } finally {
      this.#flights.delete(key);
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
