import type { AccessKeyCaveats } from '@sibyl/protocol';
import type { Kysely } from 'kysely';
import { prepareQuery, type StoreContext } from './database.js';
import { addRevocation } from './revocation-store.js';
import { type DelegationPurpose, type DelegationRow, delegations } from './schema/delegations.js';
import type { Schema } from './schema/index.js';

const PURPOSE: DelegationPurpose = 'access-key';

/** Maximum number of access keys of one user. */
export const ACCESS_KEYS_PER_OWNER = 100;

/** `lastUsedAt` is written at most this often. */
const USE_PRECISION_MS = 60_000;

export interface AccessKeyId {
  readonly owner: string;
  readonly cid: string;
}

/** A registered access key; the token is not stored. Times in milliseconds, except `expiresAt`. */
export interface AccessKeyRecord extends AccessKeyId {
  readonly name: string;
  readonly caveats: AccessKeyCaveats;
  /** Unix seconds. */
  readonly expiresAt: number;
  readonly createdAt: number;
  readonly lastUsedAt: number | undefined;
  readonly turnsToday: number;
}

export interface NewAccessKey extends AccessKeyId {
  readonly audience: string;
  readonly capabilities: readonly { readonly can: string; readonly with: string }[];
  readonly name: string;
  readonly caveats: AccessKeyCaveats;
  readonly expiresAt: number;
}

const findKey = prepareQuery((tables, { owner, cid }: AccessKeyId) =>
  tables
    .selectFrom('delegations')
    .select('last_used_at')
    .where('owner', '=', owner)
    .where('cid', '=', cid)
    .where('purpose', '=', PURPOSE),
);

/** The access keys that users have registered: delegations with the purpose `access-key`. */
export class AccessKeyStore {
  constructor(private readonly context: StoreContext) {}

  /** Registers a key, or renames it; undefined if the user has too many. */
  register(key: NewAccessKey): Promise<AccessKeyRecord | undefined> {
    const { owner, cid, audience, name, caveats, expiresAt } = key;
    const now = this.context.clock();
    return this.context.database.writeFor(owner, async (tables) => {
      await deleteKeys(tables, owner)
        .where('expires_at', '<=', Math.floor(now / 1000))
        .execute();
      const { others } = await selectKeys(tables, owner)
        .select(({ fn }) => fn.countAll().as('others'))
        .where('cid', '!=', cid)
        .executeTakeFirstOrThrow();
      if (Number(others) >= ACCESS_KEYS_PER_OWNER) return undefined;
      const row = await tables
        .insertInto('delegations')
        .values({
          owner,
          cid,
          purpose: PURPOSE,
          audience,
          capabilities: JSON.stringify(key.capabilities),
          expires_at: expiresAt,
          created_at: now,
          stored_at: now,
          name,
          caveats: JSON.stringify(caveats),
        })
        .onConflict((c) => c.columns(['owner', 'cid', 'purpose']).doUpdateSet({ name }))
        .returningAll()
        .executeTakeFirstOrThrow();
      return this.toRecord(row);
    });
  }

  /** Newest first. */
  async list(owner: string): Promise<readonly AccessKeyRecord[]> {
    const rows = await selectKeys(this.context.database.tables, owner)
      .selectAll()
      .orderBy('created_at', 'desc')
      .orderBy('cid')
      .execute();
    return rows.map((row) => this.toRecord(row));
  }

  /** Whether a key is registered; records its use. */
  async use(key: AccessKeyId): Promise<boolean> {
    const { database, clock } = this.context;
    const { rows } = await findKey(database.tables, key);
    const [row] = rows;
    if (!row) return false;
    const now = clock();
    if (now - (row.last_used_at ?? 0) >= USE_PRECISION_MS)
      await database.write((tables) => updateKey(tables, key).set({ last_used_at: now }).execute());
    return true;
  }

  /** Counts a turn; false if the key has had `limit` turns today, on any host. */
  takeTurn(key: AccessKeyId, limit: number): Promise<boolean> {
    const day = this.today();
    return this.context.database.writeFor(key.owner, async (tables) => {
      const row = await selectKeys(tables, key.owner)
        .select(['turns_day', 'turns'])
        .where('cid', '=', key.cid)
        .executeTakeFirst();
      const turns = row?.turns_day === day ? (row.turns ?? 0) : 0;
      if (!row || turns >= limit) return false;
      await updateKey(tables, key)
        .set({ turns_day: day, turns: turns + 1 })
        .execute();
      return true;
    });
  }

  /** Does not count a turn that has not started. */
  async returnTurn(key: AccessKeyId): Promise<void> {
    await this.context.database.write((tables) =>
      updateKey(tables, key)
        .set(({ eb }) => ({ turns: eb('turns', '-', 1) }))
        .where('turns_day', '=', this.today())
        .where('turns', '>', 0)
        .execute(),
    );
  }

  /** Deletes a key and stores its CID as revoked, both or neither; false if there is none. */
  revoke({ owner, cid }: AccessKeyId): Promise<boolean> {
    return this.context.database.write(async (tables) => {
      const row = await deleteKeys(tables, owner)
        .where('cid', '=', cid)
        .returning('expires_at')
        .executeTakeFirst();
      if (!row) return false;
      await addRevocation(this.context, tables, { owner, cid, expiresAt: row.expires_at });
      return true;
    });
  }

  private today(): string {
    return new Date(this.context.clock()).toISOString().slice(0, 10);
  }

  private toRecord(row: DelegationRow): AccessKeyRecord {
    const {
      owner,
      cid,
      name = '',
      caveats = {},
      createdAt,
      lastUsedAt,
      ...key
    } = delegations.toValues(row);
    const turnsToday = key.turnsDay === this.today() ? (key.turns ?? 0) : 0;
    const { expiresAt = 0 } = key;
    return { owner, cid, name, caveats, expiresAt, createdAt, lastUsedAt, turnsToday };
  }
}

const selectKeys = (tables: Kysely<Schema>, owner: string) =>
  tables.selectFrom('delegations').where('owner', '=', owner).where('purpose', '=', PURPOSE);

const deleteKeys = (tables: Kysely<Schema>, owner: string) =>
  tables.deleteFrom('delegations').where('owner', '=', owner).where('purpose', '=', PURPOSE);

const updateKey = (tables: Kysely<Schema>, { owner, cid }: AccessKeyId) =>
  tables
    .updateTable('delegations')
    .where('owner', '=', owner)
    .where('cid', '=', cid)
    .where('purpose', '=', PURPOSE);
