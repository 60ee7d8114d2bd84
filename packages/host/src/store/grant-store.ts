import type { Kysely } from 'kysely';
import type { StoreContext } from './database.js';
import type { DelegationFacts } from './delegation-store.js';
import type { Vault } from './encryption.js';
import type { DelegationPurpose } from './schema/delegations.js';
import type { Schema } from './schema/index.js';

/** Grants of one user for one purpose; a row takes at most about 18 kB. */
const GRANTS_PER_OWNER = 200;

/** A purpose for which the oracle keeps tokens of users to use them later. */
export type GrantPurpose = Exclude<DelegationPurpose, 'services'>;

export interface GrantKey {
  readonly owner: string;
  readonly purpose: GrantPurpose;
  readonly cid: string;
}

export interface StoredGrant {
  readonly cid: string;
  /** Undefined if it cannot be decrypted, because the oracle's key has changed. */
  readonly raw: string | undefined;
}

export type NewGrant = DelegationFacts & Pick<GrantKey, 'purpose'> & { readonly raw: string };

type Grants = Pick<GrantKey, 'owner' | 'purpose'>;

/** Delegations that let the oracle act as a user later; each is kept with its token, encrypted. */
export class GrantStore {
  constructor(
    private readonly context: StoreContext,
    private readonly vault: Vault,
  ) {}

  /** Stores a grant; false if the user has too many that have not expired. */
  put(grant: NewGrant): Promise<boolean> {
    const { database, clock } = this.context;
    const now = clock();
    return database.writeFor(grant.owner, (tables) =>
      insertGrant(tables, grant, { vault: this.vault, now }),
    );
  }

  async get(key: GrantKey): Promise<StoredGrant | undefined> {
    const row = await selectGrants(this.context.database.tables, key)
      .where('cid', '=', key.cid)
      .executeTakeFirst();
    return row && this.open(key, row);
  }

  /** Newest first. */
  async list(grants: Grants): Promise<readonly StoredGrant[]> {
    const rows = await selectGrants(this.context.database.tables, grants)
      .orderBy('created_at', 'desc')
      .execute();
    return rows.map((row) => this.open(grants, row));
  }

  /** Deletes a grant that is not used any more; this does not revoke it. */
  async remove({ owner, purpose, cid }: GrantKey): Promise<void> {
    await this.context.database.write((tables) =>
      tables
        .deleteFrom('delegations')
        .where('owner', '=', owner)
        .where('cid', '=', cid)
        .where('purpose', '=', purpose)
        .execute(),
    );
  }

  private open(
    grants: Grants,
    { cid, ciphertext }: { cid: string; ciphertext: string | null },
  ): StoredGrant {
    const opened = this.vault.open(ciphertext ?? '', toVaultContext({ ...grants, cid }));
    return { cid, raw: 'ok' in opened ? opened.ok : undefined };
  }
}

/** Stores a grant inside of a unit of work of its owner; false if the user has too many that have not expired. */
export async function insertGrant(
  tables: Kysely<Schema>,
  { purpose, raw, ...facts }: NewGrant,
  { vault, now }: { readonly vault: Vault; readonly now: number },
): Promise<boolean> {
  const { owner, cid, audience, capabilities, expiresAt } = facts;
  const key = { owner, purpose, cid };
  await deleteExpired(tables, key, Math.floor(now / 1000));
  if ((await countOthers(tables, key)) >= GRANTS_PER_OWNER) return false;
  const row = {
    ...key,
    audience,
    capabilities: JSON.stringify(capabilities.map(({ can, with: at }) => ({ can, with: at }))),
    ciphertext: vault.seal(raw, toVaultContext(key)),
    expires_at: expiresAt,
    created_at: now,
    stored_at: now,
    last_used_at: null,
  };
  await tables
    .insertInto('delegations')
    .values(row)
    .onConflict((c) => c.columns(['owner', 'cid', 'purpose']).doNothing())
    .execute();
  return true;
}

async function countOthers(
  tables: Kysely<Schema>,
  { owner, purpose, cid }: GrantKey,
): Promise<number> {
  const { count } = await tables
    .selectFrom('delegations')
    .select((e) => e.fn.countAll<number>().as('count'))
    .where('owner', '=', owner)
    .where('purpose', '=', purpose)
    .where('cid', '<>', cid)
    .executeTakeFirstOrThrow();
  return Number(count);
}

const selectGrants = (tables: Kysely<Schema>, { owner, purpose }: Grants) =>
  tables
    .selectFrom('delegations')
    .select(['cid', 'ciphertext'])
    .where('owner', '=', owner)
    .where('purpose', '=', purpose);

async function deleteExpired(
  tables: Kysely<Schema>,
  { owner, purpose }: Grants,
  now: number,
): Promise<void> {
  await tables
    .deleteFrom('delegations')
    .where('owner', '=', owner)
    .where('purpose', '=', purpose)
    .where('expires_at', '<=', now)
    .execute();
}

/** Binds the ciphertext to its row, so that it cannot be decrypted in another one. */
const toVaultContext = ({ owner, purpose, cid }: GrantKey): readonly string[] => [
  'grant',
  owner,
  purpose,
  cid,
];
