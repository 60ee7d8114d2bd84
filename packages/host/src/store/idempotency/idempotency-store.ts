import type { StoreContext } from '../database/store-context.js';
import {
  type ClaimResult,
  claimKey,
  type FirstOutcome,
  type KeyClaim,
  releaseKey,
} from './claim-key.js';

export interface IdempotencyKey {
  readonly owner: string;
  readonly key: string;
}

/** Remembers what became of requests sent with an `Idempotency-Key`, per user. */
export class IdempotencyStore {
  readonly #context: StoreContext;

  constructor(context: StoreContext) {
    this.#context = context;
  }

  /** Of many requests with one key at once, exactly one is told `new`. */
  begin(claim: KeyClaim): Promise<ClaimResult> {
    const { database, clock } = this.#context;
    return database.write((tables) => claimKey(tables, claim, clock()));
  }

  /** Keeps the outcome for those who ask again. */
  async complete({ owner, key, ...outcome }: IdempotencyKey & FirstOutcome): Promise<void> {
    const values = {
      ...(outcome.runId !== undefined && { run_id: outcome.runId }),
      ...(outcome.status !== undefined && { status: outcome.status }),
      ...(outcome.response !== undefined && { response: JSON.stringify(outcome.response) }),
    };
    if (Object.keys(values).length === 0) return;
    await this.#context.database.write((tables) =>
      tables
        .updateTable('idempotency_keys')
        .set(values)
        .where('owner', '=', owner)
        .where('key', '=', key)
        .execute(),
    );
  }

  /** For a request that failed before it had an effect: the key may be used anew. */
  release(key: IdempotencyKey): Promise<void> {
    return this.#context.database.write((tables) => releaseKey(tables, key));
  }

  /** Forgets what has expired; says how many. */
  prune(): Promise<number> {
    const now = this.#context.clock();
    return this.#context.database.write(async (tables) => {
      const { numDeletedRows } = await tables
        .deleteFrom('idempotency_keys')
        .where('expires_at', '<=', now)
        .executeTakeFirstOrThrow();
      return Number(numDeletedRows);
    });
  }
}
