import type { PluginMigrations } from '@sibyl/plugin-kit';
import { type Kysely, sql } from 'kysely';

/** The plugin's tables: amounts are whole numbers of the smallest unit, timestamps milliseconds. */
export interface CreditsTables {
  credits_accounts: AccountRow;
  credits_entries: EntryRow;
  credits_reservations: ReservationRow;
  credits_unpaid: UnpaidRow;
}

export type Tables = Kysely<CreditsTables>;

export interface AccountRow {
  owner: string;
  balance: number;
  /** Part of the balance that running turns have set aside. */
  reserved: number;
  /** Sum of the owner's rows in `credits_unpaid`. */
  unpaid: number;
  last_entry: number;
  /** 1 once the owner has had the initial grant. */
  is_welcomed: number;
  updated_at: number;
}

export type EntryKind = 'grant' | 'charge' | 'refund';

/** Rows are only ever added; the amounts of an owner add up to the balance. */
export interface EntryRow {
  owner: string;
  seq: number;
  kind: EntryKind;
  amount: number;
  balance: number;
  /** What the usage cost, of which `amount` was paid. */
  cost: number | null;
  session_id: string | null;
  request_id: string | null;
  usage: string | null;
  note: string | null;
  reference: string | null;
  created_at: number;
}

export interface ReservationRow {
  id: string;
  owner: string;
  session_id: string;
  request_id: string;
  /** What is set aside; 0 once settled for a holder that was gone. */
  amount: number;
  /** The known cost of the turn. */
  incurred: number;
  /** What was charged already. */
  charged: number;
  holder: string;
  lease_until: number;
  created_at: number;
}

export interface UnpaidRow {
  id: string;
  owner: string;
  amount: number;
  session_id: string;
  request_id: string;
  /** Set while another plugin collects it, so that the balance does not pay it too. */
  taken_at: number | null;
  created_at: number;
}

// biome-ignore lint/suspicious/noExplicitAny: a migration sees the tables of its time.
type AnyTables = Kysely<any>;

/** The ledger's tables. */
export const migrations: PluginMigrations = {
  async '0001-ledger'(tables) {
    await createAccounts(tables);
    await createEntries(tables);
    await createReservations(tables);
    await createUnpaid(tables);
  },
  /** Keys begin with the owner, so that the tables can be distributed by owner; SQLite has one server anyway. */
  async '0002-owner-first'(tables, engine) {
    if (engine !== 'postgres') return;
    for (const table of ['credits_reservations', 'credits_unpaid'])
      await sql`alter table ${sql.table(table)}
        drop constraint ${sql.ref(`${table}_pkey`)}, add primary key (owner, id)`.execute(tables);
  },
};

async function createAccounts(tables: AnyTables): Promise<void> {
  await tables.schema
    .createTable('credits_accounts')
    .addColumn('owner', 'text', (c) => c.primaryKey().notNull())
    .addColumn('balance', 'bigint', (c) => c.notNull())
    .addColumn('reserved', 'bigint', (c) => c.notNull())
    .addColumn('unpaid', 'bigint', (c) => c.notNull())
    .addColumn('last_entry', 'bigint', (c) => c.notNull())
    .addColumn('is_welcomed', 'integer', (c) => c.notNull())
    .addColumn('updated_at', 'bigint', (c) => c.notNull())
    .execute();
}

async function createEntries(tables: AnyTables): Promise<void> {
  await tables.schema
    .createTable('credits_entries')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('seq', 'bigint', (c) => c.notNull())
    .addColumn('kind', 'text', (c) => c.notNull())
    .addColumn('amount', 'bigint', (c) => c.notNull())
    .addColumn('balance', 'bigint', (c) => c.notNull())
    .addColumn('cost', 'bigint')
    .addColumn('session_id', 'text')
    .addColumn('request_id', 'text')
    .addColumn('usage', 'text')
    .addColumn('note', 'text')
    .addColumn('reference', 'text', (c) => c.unique())
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addPrimaryKeyConstraint('credits_entries_pk', ['owner', 'seq'])
    .execute();
}

async function createReservations(tables: AnyTables): Promise<void> {
  await tables.schema
    .createTable('credits_reservations')
    .addColumn('id', 'text', (c) => c.primaryKey().notNull())
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('session_id', 'text', (c) => c.notNull())
    .addColumn('request_id', 'text', (c) => c.notNull())
    .addColumn('amount', 'bigint', (c) => c.notNull())
    .addColumn('incurred', 'bigint', (c) => c.notNull())
    .addColumn('charged', 'bigint', (c) => c.notNull())
    .addColumn('holder', 'text', (c) => c.notNull())
    .addColumn('lease_until', 'bigint', (c) => c.notNull())
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .execute();
  await tables.schema
    .createIndex('credits_reservations_by_lease')
    .on('credits_reservations')
    .column('lease_until')
    .execute();
}

async function createUnpaid(tables: AnyTables): Promise<void> {
  await tables.schema
    .createTable('credits_unpaid')
    .addColumn('id', 'text', (c) => c.primaryKey().notNull())
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('amount', 'bigint', (c) => c.notNull())
    .addColumn('session_id', 'text', (c) => c.notNull())
    .addColumn('request_id', 'text', (c) => c.notNull())
    .addColumn('taken_at', 'bigint')
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .execute();
  await tables.schema
    .createIndex('credits_unpaid_by_owner')
    .on('credits_unpaid')
    .columns(['owner', 'created_at', 'id'])
    .execute();
}
