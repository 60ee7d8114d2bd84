import type { PluginMigrations } from '@sibyl/plugin-kit';
import type { Kysely } from 'kysely';

// biome-ignore lint/suspicious/noExplicitAny: a migration sees the tables of its own time.
type Tables = Kysely<any>;

/** The ledger's tables. */
export const migrations: PluginMigrations = {
  async '0001-ledger'(tables) {
    await createAccounts(tables);
    await createEntries(tables);
    await createReservations(tables);
    await createUnpaid(tables);
  },
};

async function createAccounts(tables: Tables): Promise<void> {
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

async function createEntries(tables: Tables): Promise<void> {
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

async function createReservations(tables: Tables): Promise<void> {
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

async function createUnpaid(tables: Tables): Promise<void> {
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
