import type { PluginMigrations } from '@sibyl/plugin-kit';
import type { Kysely } from 'kysely';
import type { ClaimStatus } from '../claim.js';

/** The plugin's tables; timestamps are milliseconds. */
export interface ClaimsTables {
  claims_claims: ClaimRow;
  claims_leases: LeaseRow;
}

export interface ClaimRow {
  id: string;
  owner: string;
  amount: number;
  session_id: string;
  request_id: string;
  status: ClaimStatus;
  /** How often it was sent, also where nobody knows whether it arrived. */
  attempts: number;
  next_attempt_at: number;
  reference: string | null;
  reason: string | null;
  created_at: number;
  updated_at: number;
}

interface LeaseRow {
  name: string;
  holder: string;
  lease_until: number;
}

// biome-ignore lint/suspicious/noExplicitAny: a migration sees the tables of its own time.
type AnyTables = Kysely<any>;

export const migrations: PluginMigrations = {
  async '0001-claims'(tables) {
    await createClaims(tables);
    await createLeases(tables);
  },
};

async function createClaims(tables: AnyTables): Promise<void> {
  await tables.schema
    .createTable('claims_claims')
    .addColumn('id', 'text', (c) => c.primaryKey().notNull())
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('amount', 'bigint', (c) => c.notNull())
    .addColumn('session_id', 'text', (c) => c.notNull())
    .addColumn('request_id', 'text', (c) => c.notNull())
    .addColumn('status', 'text', (c) => c.notNull())
    .addColumn('attempts', 'bigint', (c) => c.notNull())
    .addColumn('next_attempt_at', 'bigint', (c) => c.notNull())
    .addColumn('reference', 'text')
    .addColumn('reason', 'text')
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addColumn('updated_at', 'bigint', (c) => c.notNull())
    .execute();
  await tables.schema
    .createIndex('claims_by_owner')
    .on('claims_claims')
    .columns(['owner', 'created_at', 'id'])
    .execute();
  await tables.schema
    .createIndex('claims_by_due')
    .on('claims_claims')
    .columns(['status', 'next_attempt_at'])
    .execute();
}

async function createLeases(tables: AnyTables): Promise<void> {
  await tables.schema
    .createTable('claims_leases')
    .addColumn('name', 'text', (c) => c.primaryKey().notNull())
    .addColumn('holder', 'text', (c) => c.notNull())
    .addColumn('lease_until', 'bigint', (c) => c.notNull())
    .execute();
}
