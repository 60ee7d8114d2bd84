import { randomUUID } from 'node:crypto';
import type { Insertable, Kysely } from 'kysely';
import { prepareQuery, type StoreContext } from './database.js';
import type { Schema } from './schema/index.js';

/** Hosts notice by their own clocks, which may be late, that a token has expired. */
const KEPT_SECONDS = 3600;

/** A delegation that its issuer (the owner) has revoked. */
export interface Revocation {
  readonly owner: string;
  readonly cid: string;
  /** Unix seconds; null for a delegation that never expires. */
  readonly expiresAt: number | null;
}

const findRevocation = prepareQuery((tables, { cid }: Pick<Revocation, 'cid'>) =>
  tables.selectFrom('revocations').select('cid').where('cid', '=', cid),
);

/** Revoked delegations, kept until they would have expired. */
export class RevocationStore {
  private readonly context: StoreContext;

  constructor(context: StoreContext) {
    this.context = context;
  }

  add(revocation: Revocation): Promise<void> {
    return this.context.database.write((tables) => addRevocation(this.context, tables, revocation));
  }

  /** Revokes again what an older backup has restored; returns how many it did not know. */
  async repeat(revocations: readonly Omit<Revocation, 'owner'>[]): Promise<number> {
    let repeated = 0;
    for (const { cid, expiresAt } of revocations)
      await this.context.database.write(async (tables) => {
        const rows = await tables
          .deleteFrom('delegations')
          .where('cid', '=', cid)
          .returning('owner')
          .execute();
        const known = await tables
          .selectFrom('revocations')
          .select('cid')
          .where('cid', '=', cid)
          .executeTakeFirst();
        if (known) return;
        const owner = rows[0]?.owner ?? `erased:${randomUUID()}`;
        await addRevocation({}, tables, { owner, cid, expiresAt });
        repeated += 1;
      });
    return repeated;
  }

  /** Does not check the owner: a CID has one issuer, and only that issuer can revoke it. */
  async has(cid: string): Promise<boolean> {
    const { rows } = await findRevocation(this.context.database.tables, { cid });
    return rows.length > 0;
  }

  /** Returns those of the given CIDs, at most a few hundred, that are revoked. */
  async filterRevoked(cids: readonly string[]): Promise<readonly string[]> {
    if (cids.length === 0) return [];
    const { tables } = this.context.database;
    const rows = await tables
      .selectFrom('revocations')
      .select('cid')
      .where('cid', 'in', cids)
      .execute();
    return rows.map(({ cid }) => cid);
  }

  /** Revoked tokens of these users that expire within this time, in any order. */
  async listExpiring(which: ExpiringSoon): Promise<readonly ExpiringRevocation[]> {
    const { owners, withinSeconds, limit } = which;
    if (owners.length === 0) return [];
    const { database, clock } = this.context;
    const now = Math.floor(clock() / 1000);
    const rows = await database.tables
      .selectFrom('revocations')
      .select(['cid', 'expires_at'])
      .where('owner', 'in', owners)
      .where('expires_at', '>', now)
      .where('expires_at', '<=', now + withinSeconds)
      .limit(limit)
      .execute();
    return rows.map(({ cid, expires_at }) => ({ cid, expiresAt: Number(expires_at) }));
  }

  /** Deletes revocations that expired a while ago; returns how many. */
  prune(): Promise<number> {
    const time = Math.floor(this.context.clock() / 1000) - KEPT_SECONDS;
    return this.context.database.write(async (tables) => {
      const { numDeletedRows } = await tables
        .deleteFrom('revocations')
        .where('expires_at', '<=', time)
        .executeTakeFirstOrThrow();
      return Number(numDeletedRows);
    });
  }
}

type ExpiringRevocation = Pick<Revocation, 'cid'> & { readonly expiresAt: number };

interface ExpiringSoon {
  readonly owners: readonly string[];
  readonly withinSeconds: number;
  readonly limit: number;
}

/** Inside the unit of work that removes what is revoked. */
export async function addRevocation(
  { removals }: Pick<StoreContext, 'removals'>,
  tables: Kysely<Schema>,
  { owner, cid, expiresAt }: Revocation,
): Promise<void> {
  // PostgreSQL returns large numbers as text.
  await removals?.addRevocation(cid, expiresAt === null ? null : Number(expiresAt));
  await tables
    .insertInto('revocations')
    .values({ owner, cid, expires_at: expiresAt })
    .onConflict((c) => c.columns(['cid', 'owner']).doNothing())
    .execute();
}

/** Claims tokens for one caller; each token can be claimed only once by any caller. */
export interface SingleUseClaims {
  /** False if the token has been claimed before. */
  claim(cid: string, expiresAt: number): Promise<boolean>;
  /** Releases a claim of the same caller. */
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

  /** The claims of one caller. */
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

  /** Whether any caller has claimed a token and not released it. */
  async has(cid: string): Promise<boolean> {
    const { rows } = await findClaim(this.context.database.tables, { cid });
    return rows.length > 0;
  }

  /** Deletes claims that expired before `time`, in the unit of `expiresAt`; returns how many. */
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

/** Marks a token as used, inside a unit of work; false if it has been used before. */
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
