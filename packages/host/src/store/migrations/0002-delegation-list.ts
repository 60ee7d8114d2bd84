import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';

// biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
type Tables = Kysely<any>;

/** Keeps every delegation of a user instead of one, expiries in seconds, and callers who were invited. */
export const delegationList: Migration = {
  async up(tables: Tables) {
    await rebuildDelegations(tables);
    await sql`update revocations set expires_at = ${inSeconds}`.execute(tables);
    await createCallers(tables);
  },
};

/** The end of the year 9999, beyond which no token is accepted. */
const LATEST_TIME = 253_402_300_799;

/** Rounded up, so that no revocation is forgotten before its delegation expires. */
const inSeconds = sql`case
  when expires_at > ${sql.lit(LATEST_TIME)} * 1000 then ${sql.lit(LATEST_TIME)}
  else (expires_at + 999) / 1000 end`;

async function rebuildDelegations(tables: Tables): Promise<void> {
  await tables.schema
    .createTable('delegations_rebuilt')
    .addColumn('owner', 'text', (c) => c.notNull())
    .addColumn('cid', 'text', (c) => c.notNull())
    .addColumn('audience', 'text', (c) => c.notNull())
    .addColumn('capabilities', 'text')
    .addColumn('ciphertext', 'text')
    .addColumn('expires_at', 'bigint')
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .addColumn('stored_at', 'bigint')
    .addColumn('last_used_at', 'bigint')
    .addPrimaryKeyConstraint('delegations_by_cid', ['owner', 'cid'])
    .execute();
  await sql`insert into delegations_rebuilt
    (owner, cid, audience, ciphertext, expires_at, created_at, stored_at)
    select owner, cid, oracle_did, ciphertext, ${inSeconds}, stored_at, stored_at
    from delegations`.execute(tables);
  await tables.schema.dropTable('delegations').execute();
  await tables.schema.alterTable('delegations_rebuilt').renameTo('delegations').execute();
  await tables.schema
    .createIndex('delegations_by_expiry')
    .on('delegations')
    .column('expires_at')
    .execute();
}

async function createCallers(tables: Tables): Promise<void> {
  await tables.schema
    .createTable('callers')
    .addColumn('did', 'text', (c) => c.primaryKey().notNull())
    .addColumn('cid', 'text', (c) => c.notNull())
    .addColumn('created_at', 'bigint', (c) => c.notNull())
    .execute();
}
