import type { Kysely } from 'kysely';
import { prepared } from '../database/prepared.js';
import type { Schema } from '../database/schema.js';
import type { StoreContext } from '../database/store-context.js';

/** A delegation its issuer (the owner) has taken back. */
export interface Revocation {
  readonly owner: string;
  readonly cid: string;
  /** Unix seconds; null for a delegation that never expires. */
  readonly expiresAt: number | null;
}

const findRevocation = prepared((tables, { cid }: Pick<Revocation, 'cid'>) =>
  tables.selectFrom('revocations').select('cid').where('cid', '=', cid),
);

/** Revoked delegations, remembered until they would have expired anyway. */
export class RevocationStore {
  readonly #context: StoreContext;

  constructor(context: StoreContext) {
    this.#context = context;
  }

  add(revocation: Revocation): Promise<void> {
    return this.#context.database.write((tables) => addRevocation(tables, revocation));
  }

  /** Whoever revoked it: a CID has one issuer, and only that issuer can store and revoke it. */
  async has(cid: string): Promise<boolean> {
    const { rows } = await findRevocation(this.#context.database.tables, { cid });
    return rows.length > 0;
  }

  /** Forgets what has expired; says how many. */
  prune(): Promise<number> {
    const now = Math.floor(this.#context.clock() / 1000);
    return this.#context.database.write(async (tables) => {
      const { numDeletedRows } = await tables
        .deleteFrom('revocations')
        .where('expires_at', '<=', now)
        .executeTakeFirstOrThrow();
      return Number(numDeletedRows);
    });
  }
}

export async function addRevocation(
  tables: Kysely<Schema>,
  { owner, cid, expiresAt }: Revocation,
): Promise<void> {
  await tables
    .insertInto('revocations')
    .values({ owner, cid, expires_at: expiresAt })
    .onConflict((c) => c.columns(['cid', 'owner']).doNothing())
    .execute();
}
