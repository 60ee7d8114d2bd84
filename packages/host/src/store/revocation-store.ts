import type { Insertable, Kysely } from 'kysely';
import { prepareQuery, type Schema, type StoreContext } from './database.js';

/** A delegation its issuer (the owner) has taken back. */
export interface Revocation {
  readonly owner: string;
  readonly cid: string;
  /** Unix seconds; null for a delegation that never expires. */
  readonly expiresAt: number | null;
}

const findRevocation = prepareQuery((tables, { cid }: Pick<Revocation, 'cid'>) =>
  tables.selectFrom('revocations').select('cid').where('cid', '=', cid),
);

/** Revoked delegations, remembered until they would have expired anyway. */
export class RevocationStore {
  private readonly context: StoreContext;

  constructor(context: StoreContext) {
    this.context = context;
  }

  add(revocation: Revocation): Promise<void> {
    return this.context.database.write((tables) => addRevocation(tables, revocation));
  }

  /** Whoever revoked it: a CID has one issuer, and only that issuer can store and revoke it. */
  async has(cid: string): Promise<boolean> {
    const { rows } = await findRevocation(this.context.database.tables, { cid });
    return rows.length > 0;
  }

  /** Forgets what has expired; says how many. */
  prune(): Promise<number> {
    const now = Math.floor(this.context.clock() / 1000);
    return this.context.database.write(async (tables) => {
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

/** Claims tokens for one caller; each token can be claimed once by anybody. */
export interface SingleUseClaims {
  /** False if the token has been claimed before. */
  claim(cid: string, expiresAt: number): Promise<boolean>;
  /** Gives back a claim of the same caller. */
  release(cid: string): Promise<void>;
}

const findClaim = prepareQuery((tables, { cid }: { readonly cid: string }) =>
  tables.selectFrom('single_use').select('cid').where('cid', '=', cid),
);

/** Tokens that may be used once, across all processes. */
export class SingleUseStore {
  private readonly context: StoreContext;

  constructor(context: StoreContext) {
    this.context = context;
  }

  /** The claims made on behalf of one caller. */
  of(owner: string): SingleUseClaims {
    const { database } = this.context;
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
    const { rows } = await findClaim(this.context.database.tables, { cid });
    return rows.length > 0;
  }

  /** Forgets claims that expired before `time`, in the unit `expiresAt` was given in; says how many. */
  prune(time: number): Promise<number> {
    return this.context.database.write(async (tables) => {
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
