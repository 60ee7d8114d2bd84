import type { StoreContext } from '../database/store-context.js';

export interface IdempotencyKey {
  readonly owner: string;
  readonly key: string;
}

/** What the first request with a key was and which run it started. */
export interface FirstRequest {
  readonly bodyHash: string;
  readonly runId: string;
}

/** The runs that requests with an `Idempotency-Key` started, per user; starting a run claims the key. */
export class IdempotencyStore {
  readonly #context: StoreContext;

  constructor(context: StoreContext) {
    this.#context = context;
  }

  async find({ owner, key }: IdempotencyKey): Promise<FirstRequest | undefined> {
    const { database, clock } = this.#context;
    const row = await database.tables
      .selectFrom('idempotency_keys')
      .select(['body_hash', 'run_id'])
      .where('owner', '=', owner)
      .where('key', '=', key)
      .where('expires_at', '>', clock())
      .executeTakeFirst();
    return row && { bodyHash: row.body_hash, runId: row.run_id };
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
