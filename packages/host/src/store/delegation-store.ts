import type { Values } from '@sibyl/plugin-kit/tables';
import { type Kysely, sql } from 'kysely';
import { prepareQuery, type StoreContext } from './database.js';
import type { Vault } from './encryption.js';
import { addRevocation } from './revocation-store.js';
import { type DelegationPurpose, type DelegationRow, delegations } from './schema/delegations.js';
import type { Schema } from './schema/index.js';

/** The purpose of the delegations that users store for the oracle's own calls, or present in requests. */
const SERVICES: DelegationPurpose = 'services';

/** Maximum number of these delegations of one user; a row takes at most about 7 kB, the current one 18 kB. */
export const DELEGATIONS_PER_OWNER = 100;

/** `lastUsedAt` is written at most this often. */
export const USE_PRECISION_MS = 3_600_000;

/** A delegation that was only presented is deleted after this time without a use; its next use records it again. */
export const UNUSED_PRESENTED_MS = 90 * 86_400_000;

/** CIDs that were removed because a user had too many. */
export interface EvictedDelegations {
  readonly dropped: readonly string[];
  /** Those of `dropped` that were revoked too. */
  readonly revoked: readonly string[];
}

export interface DelegationKey {
  readonly owner: string;
  /** The oracle's DID. */
  readonly audience: string;
}

/** A delegation without its token. */
export interface DelegationFacts extends DelegationKey {
  readonly cid: string;
  readonly capabilities: readonly { readonly can: string; readonly with: string }[];
  /** Unix seconds; null for a delegation that never expires. */
  readonly expiresAt: number | null;
}

/** A delegation in the list of a user; old rows have their capabilities only in the token. Times in milliseconds. */
export interface DelegationRecord extends Omit<Values<typeof delegationFacts>, 'expiresAt'> {
  /** Unix seconds; null for a delegation that never expires. */
  readonly expiresAt: number | null;
  readonly isCurrent: boolean;
}

/** What a plugin did with a delegation: it signed something, or started a turn. */
export interface PluginUse extends Pick<DelegationFacts, 'owner' | 'cid'> {
  readonly purpose: DelegationPurpose;
  readonly plugin: string;
  /** Milliseconds. */
  readonly at: number;
}

export type DelegationResult =
  | {
      readonly ok: {
        readonly cid: string;
        readonly expiresAt: number | null;
        readonly raw: string;
      };
    }
  | { readonly error: 'not-found' }
  | { readonly error: 'unreadable'; readonly reason: string };

/**
 * The delegations that users have stored, or presented in requests. The newest stored one is current; only its token is
 * kept, encrypted.
 */
export class DelegationStore {
  private readonly context: StoreContext;
  private readonly vault: Vault;

  constructor(context: StoreContext, vault: Vault) {
    this.context = context;
    this.vault = vault;
  }

  /** Stores a delegation as the current one; returns those that were removed because the user has too many. */
  put({ raw, ...facts }: DelegationFacts & { readonly raw: string }): Promise<EvictedDelegations> {
    const { owner, audience, cid } = facts;
    const ciphertext = this.vault.seal(raw, toVaultContext(facts));
    return this.context.database.writeFor(owner, async (tables) => {
      const stored_at = await this.nextTime(tables, owner);
      const row = toRow(facts);
      const { capabilities } = row;
      await tables
        .insertInto('delegations')
        .values({ ...row, ciphertext, created_at: stored_at, stored_at })
        .onConflict((c) =>
          c
            .columns(['owner', 'cid', 'purpose'])
            .doUpdateSet({ capabilities, ciphertext, stored_at }),
        )
        .execute();
      await tables
        .updateTable('delegations')
        .set({ ciphertext: null })
        .where('owner', '=', owner)
        .where('purpose', '=', SERVICES)
        .where('audience', '=', audience)
        .where('cid', '!=', cid)
        .where('ciphertext', 'is not', null)
        .execute();
      return this.evictExcess(tables, owner);
    });
  }

  /** The current delegation. */
  async get(key: DelegationKey): Promise<DelegationResult> {
    const { rows } = await findCurrent(this.context.database.tables, key);
    const [row] = rows;
    if (row === undefined || row.ciphertext === null) return { error: 'not-found' };
    const opened = this.vault.open(row.ciphertext, toVaultContext(key));
    if ('error' in opened) return { error: 'unreadable', reason: opened.error };
    return { ok: { cid: row.cid, expiresAt: row.expires_at, raw: opened.ok } };
  }

  /**
   * Records the use of a delegation; writes on first use and then at most once an hour. Returns the CIDs that were
   * removed because the user has too many.
   */
  async recordUse(facts: DelegationFacts): Promise<readonly string[]> {
    const { owner, cid } = facts;
    const now = this.context.clock();
    const { rows } = await findUse(this.context.database.tables, { owner, cid });
    if (now - (rows[0]?.last_used_at ?? 0) < USE_PRECISION_MS) return [];
    return this.context.database.writeFor(owner, async (tables) => {
      const created_at = await this.nextTime(tables, owner);
      await tables
        .insertInto('delegations')
        .values({ ...toRow(facts), created_at, last_used_at: now })
        .onConflict((c) =>
          c.columns(['owner', 'cid', 'purpose']).doUpdateSet({ last_used_at: now }),
        )
        .execute();
      return (await this.evictExcess(tables, owner)).dropped;
    });
  }

  /**
   * Stores which plugins used delegations, and when. Each has a separate transaction: one for all would lock rows in an
   * order that `put` does not know.
   */
  async recordPlugins(uses: readonly PluginUse[]): Promise<void> {
    for (const { owner, cid, purpose, plugin, at } of uses)
      await this.context.database.write((tables) =>
        tables
          .updateTable('delegations')
          .set({
            last_used_by: plugin,
            last_used_at: sql<number>`case when last_used_at > ${at} then last_used_at else ${at} end`,
          })
          .where('owner', '=', owner)
          .where('cid', '=', cid)
          .where('purpose', '=', purpose)
          .execute(),
      );
  }

  /** All delegations of a user that are not revoked, newest first. */
  async list(owner: string): Promise<readonly DelegationRecord[]> {
    const rows = await this.context.database.tables
      .selectFrom('delegations')
      .selectAll()
      .where('owner', '=', owner)
      // A use during the revocation may have been recorded after it.
      .where(({ not, exists, selectFrom }) =>
        not(
          exists(
            selectFrom('revocations')
              .select('revocations.cid')
              .whereRef('revocations.cid', '=', 'delegations.cid'),
          ),
        ),
      )
      .orderBy('created_at', 'desc')
      .orderBy('cid')
      .execute();
    const current = new Map<string, DelegationRow>();
    for (const row of rows) {
      const newest = current.get(row.audience);
      if (row.purpose !== SERVICES) continue;
      if (row.ciphertext && (row.stored_at ?? 0) > (newest?.stored_at ?? 0))
        current.set(row.audience, row);
    }
    return rows.map((row) => toRecord(row, current.get(row.audience) === row));
  }

  /** Deletes one delegation of a user and stores its CID as revoked, both or neither. */
  async revoke(owner: string, cid: string): Promise<boolean> {
    const revoked = await this.revokeWhere(owner, (query) => query.where('cid', '=', cid));
    return revoked.length > 0;
  }

  /** Revokes the current delegation of a user and those it replaced; returns their CIDs. */
  revokeStored(owner: string): Promise<readonly string[]> {
    return this.revokeWhere(owner, (query) =>
      query.where('purpose', '=', SERVICES).where('stored_at', 'is not', null),
    );
  }

  /** Revokes all delegations that `list` returns, including those that were only presented. */
  revokeAll(owner: string): Promise<readonly string[]> {
    return this.revokeWhere(owner, (query) => query);
  }

  /**
   * Deletes expired delegations, except current ones, whose status their users can see, and delegations that were
   * only presented and not used for `UNUSED_PRESENTED_MS`.
   */
  prune(): Promise<number> {
    const now = this.seconds();
    const unusedSince = this.context.clock() - UNUSED_PRESENTED_MS;
    return this.context.database.write(async (tables) => {
      const { numDeletedRows } = await tables
        .deleteFrom('delegations')
        .where('ciphertext', 'is', null)
        .where(({ or, and, eb }) =>
          or([
            eb('expires_at', '<=', now),
            and([eb('stored_at', 'is', null), eb('last_used_at', '<=', unusedSince)]),
          ]),
        )
        .executeTakeFirstOrThrow();
      return Number(numDeletedRows);
    });
  }

  private revokeWhere(
    owner: string,
    restrict: (query: ReturnType<typeof deleteDelegations>) => ReturnType<typeof deleteDelegations>,
  ): Promise<readonly string[]> {
    return this.context.database.writeFor(owner, async (tables) => {
      const rows = await restrict(deleteDelegations(tables, owner))
        .returning(['cid', 'expires_at'])
        .execute();
      for (const { cid, expires_at } of rows)
        await addRevocation(this.context, tables, { owner, cid, expiresAt: expires_at });
      return [...new Set(rows.map(({ cid }) => cid))];
    });
  }

  /** Later than all other rows of the user, so that their order is unambiguous. */
  private async nextTime(tables: Kysely<Schema>, owner: string): Promise<number> {
    const { newest } = await tables
      .selectFrom('delegations')
      .select(({ fn }) => fn.max('created_at').as('newest'))
      .where('owner', '=', owner)
      .executeTakeFirstOrThrow();
    return Math.max(this.context.clock(), Number(newest ?? 0) + 1);
  }

  /**
   * Deletes delegations beyond the limit: expired ones first, then replaced ones, then those presented longest ago,
   * never the current one. A replaced one that is still valid is revoked, because its user could no longer list it.
   * One that was only presented stays valid and is listed again at its next use; until then `revokeAll` does not
   * revoke it.
   */
  private async evictExcess(tables: Kysely<Schema>, owner: string): Promise<EvictedDelegations> {
    const now = this.seconds();
    const rank = sql<number>`case when expires_at <= ${now} then 0 when stored_at is not null then 1 else 2 end`;
    const { count } = await tables
      .selectFrom('delegations')
      .select(({ fn }) => fn.countAll().as('count'))
      .where('owner', '=', owner)
      .where('purpose', '=', SERVICES)
      .executeTakeFirstOrThrow();
    const excess = Number(count) - DELEGATIONS_PER_OWNER;
    if (excess <= 0) return { dropped: [], revoked: [] };
    const rows = await tables
      .selectFrom('delegations')
      .select(['cid', 'expires_at', rank.as('rank')])
      .where('owner', '=', owner)
      .where('purpose', '=', SERVICES)
      .where('ciphertext', 'is', null)
      .orderBy('rank')
      .orderBy(sql`coalesce(last_used_at, created_at)`)
      .orderBy('created_at')
      .limit(excess)
      .execute();
    for (const { cid } of rows)
      await deleteDelegations(tables, owner)
        .where('cid', '=', cid)
        .where('purpose', '=', SERVICES)
        .execute();
    const replaced = rows.filter((row) => Number(row.rank) === 1);
    for (const { cid, expires_at } of replaced)
      await addRevocation(this.context, tables, { owner, cid, expiresAt: expires_at });
    return { dropped: rows.map(({ cid }) => cid), revoked: replaced.map(({ cid }) => cid) };
  }

  private seconds(): number {
    return Math.floor(this.context.clock() / 1000);
  }
}

const findCurrent = prepareQuery((tables, { owner, audience }: DelegationKey) =>
  tables
    .selectFrom('delegations')
    .select(['cid', 'expires_at', 'ciphertext'])
    .where('owner', '=', owner)
    .where('purpose', '=', SERVICES)
    .where('audience', '=', audience)
    .where('ciphertext', 'is not', null)
    .orderBy('stored_at', 'desc')
    .limit(1),
);

const findUse = prepareQuery((tables, { owner, cid }: Pick<DelegationFacts, 'owner' | 'cid'>) =>
  tables
    .selectFrom('delegations')
    .select('last_used_at')
    .where('owner', '=', owner)
    .where('cid', '=', cid)
    .where('purpose', '=', SERVICES),
);

const deleteDelegations = (tables: Kysely<Schema>, owner: string) =>
  tables.deleteFrom('delegations').where('owner', '=', owner);

/** Binds the ciphertext to its owner and oracle, so that it cannot be decrypted in another row. */
function toVaultContext({ owner, audience }: DelegationKey): readonly string[] {
  return ['delegation', owner, audience];
}

function toRow({ owner, cid, audience, capabilities, expiresAt }: DelegationFacts) {
  const granted = capabilities.map(({ can, with: resource }) => ({ can, with: resource }));
  return {
    owner,
    cid,
    purpose: SERVICES,
    audience,
    capabilities: JSON.stringify(granted),
    expires_at: expiresAt,
  } as const;
}

/** Without its token, and what belongs to access keys. */
const delegationFacts = delegations.without(
  ...(['ciphertext', 'stored_at', 'name', 'caveats', 'turns_day', 'turns'] as const),
);

const toRecord = (row: DelegationRow, isCurrent: boolean): DelegationRecord => ({
  ...delegationFacts.toValues(row),
  expiresAt: row.expires_at,
  isCurrent,
});
