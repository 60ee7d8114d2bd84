import type { Insertable, Kysely } from 'kysely';
import { prepared } from '../database/prepared.js';
import type { Schema } from '../database/schema.js';
import type { StoreContext } from '../database/store-context.js';

/** Claims tokens for one caller; each token can be claimed once by anybody. */
export interface SingleUseClaims {
  /** False if the token has been claimed before. */
  claim(cid: string, expiresAt: number): Promise<boolean>;
  /** Gives back a claim of the same caller. */
  release(cid: string): Promise<void>;
}

const findClaim = prepared((tables, { cid }: { readonly cid: string }) =>
  tables.selectFrom('single_use').select('cid').where('cid', '=', cid),
);

/** Tokens that may be used once, across all processes. */
export class SingleUseStore {
  readonly #context: StoreContext;

  constructor(context: StoreContext) {
    this.#context = context;
  }

  /** The claims made on behalf of one caller. */
  of(owner: string): SingleUseClaims {
    const { database } = this.#context;
    return {
      claim: (cid, expiresAt) =>
        database.write((tables) => claimOnce(tables, { cid, owner, expires_at: expiresAt })),
      release: (cid) =>
        database.write(async (tables) => {
          await tables
            .deleteFrom('single_use')
            .where('cid', '=', cid)
            .where('owner', '=', owner)
            .execute();
        }),
    };
  }

  /** Whether a token has been claimed and not released, by anyone. */
  async has(cid: string): Promise<boolean> {
    const { rows } = await findClaim(this.#context.database.tables, { cid });
    return rows.length > 0;
  }

  /** Forgets claims that expired before `time`, in the unit `expiresAt` was given in; says how many. */
  prune(time: number): Promise<number> {
    return this.#context.database.write(async (tables) => {
      const { numDeletedRows } = await tables
        .deleteFrom('single_use')
        .where('expires_at', '<', time)
        .executeTakeFirstOrThrow();
      return Number(numDeletedRows);
    });
  }
}

/** Marks a token as used, within a unit; false if it has been used before. */
export async function claimOnce(
  tables: Kysely<Schema>,
  claim: Insertable<Schema['single_use']>,
): Promise<boolean> {
  const claimed = await tables
    .insertInto('single_use')
    .values(claim)
    .onConflict((c) => c.column('cid').doNothing())
    .returning('cid')
    .executeTakeFirst();
  return claimed !== undefined;
}
