import type { Kysely } from 'kysely';
import { prepared } from '../database/prepared.js';
import type { DelegationRow, Schema } from '../database/schema.js';
import type { StoreContext } from '../database/store-context.js';
import type { Vault } from '../encryption.js';
import { addRevocation } from './revocation-store.js';

export interface DelegationKey {
  readonly owner: string;
  readonly oracleDid: string;
}

/** What is known of a stored delegation without opening it; times in milliseconds. */
export interface DelegationRecord extends DelegationKey {
  readonly cid: string;
  readonly issuer: string;
  readonly audience: string;
  /** Null for a delegation that never expires. */
  readonly expiresAt: number | null;
  readonly storedAt: number;
}

export interface StoredDelegation extends DelegationRecord {
  readonly raw: string;
}

export interface NewDelegation extends Omit<StoredDelegation, 'storedAt'> {}

export type DelegationResult =
  | { readonly ok: StoredDelegation }
  | { readonly error: 'not-found' }
  | { readonly error: 'unreadable'; readonly reason: string };

/** The delegation each user has given each oracle, one at a time, sealed at rest. */
export class DelegationStore {
  readonly #context: StoreContext;
  readonly #vault: Vault;

  constructor(context: StoreContext, vault: Vault) {
    this.#context = context;
    this.#vault = vault;
  }

  /** Replaces the delegation stored before. */
  async put({ raw, ...delegation }: NewDelegation): Promise<DelegationRecord> {
    const record = { ...delegation, storedAt: this.#context.clock() };
    const { owner, oracle_did, ...values } = toRow(record, this.#vault.seal(raw, placeOf(record)));
    await this.#context.database.write((tables) =>
      tables
        .insertInto('delegations')
        .values({ owner, oracle_did, ...values })
        .onConflict((c) => c.columns(['owner', 'oracle_did']).doUpdateSet(values))
        .execute(),
    );
    return record;
  }

  async get(key: DelegationKey): Promise<DelegationResult> {
    const { rows } = await findRow(this.#context.database.tables, key);
    const [row] = rows;
    if (row === undefined) return { error: 'not-found' };
    const opened = this.#vault.open(row.ciphertext, placeOf(key));
    if ('error' in opened) return { error: 'unreadable', reason: opened.error };
    return { ok: { ...toRecord(row), raw: opened.ok } };
  }

  /** Drops the delegation and remembers its CID as revoked, both or neither. */
  revoke(key: DelegationKey): Promise<DelegationRecord | undefined> {
    return this.#context.database.write(async (tables) => {
      const removed = await remove(tables, key);
      if (removed !== undefined) await addRevocation(tables, removed);
      return removed;
    });
  }
}

const findRow = prepared((tables, { owner, oracleDid }: DelegationKey) =>
  tables
    .selectFrom('delegations')
    .selectAll()
    .where('owner', '=', owner)
    .where('oracle_did', '=', oracleDid),
);

async function remove(
  tables: Kysely<Schema>,
  key: DelegationKey,
): Promise<DelegationRecord | undefined> {
  const row = await tables
    .deleteFrom('delegations')
    .where('owner', '=', key.owner)
    .where('oracle_did', '=', key.oracleDid)
    .returningAll()
    .executeTakeFirst();
  return row && toRecord(row);
}

/** Binds the ciphertext to its owner and oracle, so that a row moved elsewhere does not open. */
function placeOf({ owner, oracleDid }: DelegationKey): readonly string[] {
  return ['delegation', owner, oracleDid];
}

function toRow(record: DelegationRecord, ciphertext: string): DelegationRow {
  return {
    owner: record.owner,
    oracle_did: record.oracleDid,
    cid: record.cid,
    ciphertext,
    issuer: record.issuer,
    audience: record.audience,
    expires_at: record.expiresAt,
    stored_at: record.storedAt,
  };
}

function toRecord(row: DelegationRow): DelegationRecord {
  return {
    owner: row.owner,
    oracleDid: row.oracle_did,
    cid: row.cid,
    issuer: row.issuer,
    audience: row.audience,
    expiresAt: row.expires_at,
    storedAt: row.stored_at,
  };
}
